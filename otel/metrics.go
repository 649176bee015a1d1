package hedgeotel

import (
	"cmp"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge/stats"
)

type metrics struct {
	meter   metric.Meter
	methods names
	targets names // alone
	totals  totals
	hedges  metric.Int64Histogram
	losers  metric.Float64Histogram

	calls, decisions metric.Int64ObservableCounter
	gauges           map[string]metric.Float64ObservableGauge
	observed         []metric.Observable
}

// Outcomes are the values of the attribute grpc.hedge.outcome. Each shows a count of [stats.Counts], which says what it means:
// "won" is HedgeWins, "lost" PrimaryWins, "no_budget" BudgetExhausted, "of_hedge" OfHedges and "learning" Warmup. The others have
// the names of their counts.
func Outcomes() []string {
	var names []string
	for _, o := range outcomes {
		names = append(names, o.name)
	}
	return names
}

var outcomes = [...]struct {
	name  string
	count func(*stats.Counts) int64
}{
	{"won", func(s *stats.Counts) int64 { return s.HedgeWins }},
	{"lost", func(s *stats.Counts) int64 { return s.PrimaryWins }},
	{"no_budget", func(s *stats.Counts) int64 { return s.BudgetExhausted }},
	{"not_drawn", func(s *stats.Counts) int64 { return s.NotDrawn }},
	{"not_ready", func(s *stats.Counts) int64 { return s.NotReady }},
	{"no_other_backend", func(s *stats.Counts) int64 { return s.NoOtherBackend }},
	{"deadline_near", func(s *stats.Counts) int64 { return s.DeadlineNear }},
	{"throttled", func(s *stats.Counts) int64 { return s.Throttled }},
	{"pushed_back", func(s *stats.Counts) int64 { return s.PushedBack }},
	{"guarded", func(s *stats.Counts) int64 { return s.Guarded }},
	{"resets_spent", func(s *stats.Counts) int64 { return s.ResetsSpent }},
	{"of_hedge", func(s *stats.Counts) int64 { return s.OfHedges }},
	{"paused", func(s *stats.Counts) int64 { return s.Paused }},
	{"learning", func(s *stats.Counts) int64 { return s.Warmup }},
	{"off", func(s *stats.Counts) int64 { return s.Off }},
	{"not_selected", func(s *stats.Counts) int64 { return s.NotSelected }},
	{"no_descriptor", func(s *stats.Counts) int64 { return s.NoDescriptor }},
	{"not_replayable", func(s *stats.Counts) int64 { return s.NotReplayable }},
	{"early_headers", func(s *stats.Counts) int64 { return s.EarlyHeaders }},
	{"dry_run", func(s *stats.Counts) int64 { return s.DryRun }},
}

// gauges are those instruments that are read when metrics are collected. Those of tokens are of targets, the others of methods.
var gauges = []struct{ name, unit, what string }{
	{"delay", "s", "The age at which a call gets its first hedge now."},
	{"tail", "s", "The target percentile: an estimate without hedging, predicted, and measured."},
	{"gain", "s", "What a control group measures: the target percentile with and without hedging, and the time saved per call."},
	{"saved", "", "The share of the time beyond the median that hedging is predicted to save, weighted towards the tail."},
	{"budget.tokens", "{token}", "Hedges that the target's budget pays for now."},
	{"throttle.tokens", "{token}", "Tokens left in the target's throttle."},
}

// read reports the values of the gauges of a method. Where a gauge has several values, which is the attribute that names one.
func read(m *stats.Method, report func(gauge string, value float64, which ...string)) {
	if m.Delay > 0 {
		report("delay", m.Delay.Seconds())
	}
	if c := &m.Choice; c.UnhedgedTail > 0 {
		report("tail", c.UnhedgedTail.Seconds(), "unhedged_estimate")
		report("tail", c.PredictedTail.Seconds(), "predicted")
		report("tail", c.MeasuredTail.Seconds(), "measured")
		report("saved", c.Saved)
	}
	if g := m.Gain; g != nil && g.Measured {
		readGain(report, "unhedged", g.Unhedged)
		readGain(report, "hedged", g.Hedged)
		readGain(report, "saved", g.Saved)
	}
}

// readGain reports a value of the gauge of the gain, and its interval.
func readGain(report func(gauge string, value float64, which ...string), which string, i stats.Interval) {
	report("gain", i.Value.Seconds(), which)
	report("gain", i.Low.Seconds(), which+"_low")
	report("gain", i.High.Seconds(), which+"_high")
}

func newMetrics(o Options) (*metrics, error) {
	most := cmp.Or(o.MaxMethods, defaultMethods)
	m := &metrics{
		meter:   o.MeterProvider.Meter("github.com/grpchedge/hedge/otel"),
		methods: names{most: most, create: newLabels, known: map[method]*labels{}},
		targets: names{most: most, create: targetLabels, known: map[method]*labels{}},
		totals:  totals{of: map[*labels]counts{}},
	}
	errs := make([]error, 4)
	m.hedges, errs[0] = m.meter.Int64Histogram("grpc.client.call.hedges", metric.WithUnit("{hedge}"),
		metric.WithDescription("Number of hedges sent during the client call. Calls without a hedge are not counted."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 4, 5))
	m.losers, errs[1] = m.meter.Float64Histogram("grpc.client.hedge.loser.duration", metric.WithUnit("s"),
		metric.WithDescription("How long attempts had run that were cancelled because another one was faster."),
		metric.WithExplicitBucketBoundaries(opentelemetry.DefaultLatencyBounds...))
	m.calls, errs[2] = m.meter.Int64ObservableCounter("grpc.client.hedge.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Calls begun, hedged or not."))
	m.decisions, errs[3] = m.meter.Int64ObservableCounter("grpc.client.hedge.decisions", metric.WithUnit("{decision}"),
		metric.WithDescription("Hedged calls won and lost, and hedges or calls held back, by outcome."))
	m.observed = []metric.Observable{m.calls, m.decisions}
	m.gauges = map[string]metric.Float64ObservableGauge{}
	for _, g := range gauges {
		made, err := m.meter.Float64ObservableGauge("grpc.client.hedge."+g.name, metric.WithUnit(g.unit), metric.WithDescription(g.what))
		m.gauges[g.name], m.observed, errs = made, append(m.observed, made), append(errs, err)
	}
	return m, errors.Join(errs...)
}

// observe reports the rows of a scheduler, and the sum of all its counts, which was read before them.
func (m *metrics) observe(to metric.Observer, sum stats.Counts, rows []stats.Method) {
	named := map[*labels]counts{}
	for i := range rows {
		row := &rows[i]
		if l := m.methods.of(row.Target, row.Method); l != others {
			named[l] = countsOf(&row.Counts)
			read(row, func(gauge string, value float64, which ...string) {
				options := []metric.ObserveOption{l.option}
				for _, w := range which {
					options = append(options, metric.WithAttributes(attribute.String("grpc.hedge."+gauge, w)))
				}
				to.ObserveFloat64(m.gauges[gauge], value, options...)
			})
		}
		if i > 0 && row.Target == rows[i-1].Target { // rows are sorted by target
			continue
		}
		if target := m.targets.of(row.Target, ""); target != others {
			to.ObserveFloat64(m.gauges["budget.tokens"], row.Tokens, target.option)
			if row.ThrottleMax > 0 {
				to.ObserveFloat64(m.gauges["throttle.tokens"], row.ThrottleTokens, target.option)
			}
		}
	}
	m.totals.add(countsOf(&sum), named)
	for l, c := range m.totals.of {
		to.ObserveInt64(m.calls, c[0], l.option)
		for n, decision := range l.decisions {
			to.ObserveInt64(m.decisions, c[1+n], decision)
		}
	}
}

// counts are the calls, and then what outcomes lists, of one pair of target and method, or of all that are not told apart.
type counts [1 + len(outcomes)]int64

func countsOf(s *stats.Counts) (c counts) {
	c[0] = s.Calls
	for n, o := range outcomes {
		c[1+n] = o.count(s)
	}
	return c
}

func (c *counts) add(others counts, times int64) {
	for n := range c {
		c[n] += times * others[n]
	}
}

// beganAgain reports whether the counts are of a method that was forgotten and has come back since it had others.
func (c *counts) beganAgain(before counts) bool {
	for n := range c {
		if c[n] < before[n] {
			return true
		}
	}
	return false
}

// totals are counters that never fall, although the counts of a method that the scheduler has forgotten begin again at 0. The
// counts of others are what remains of the scheduler's own, which never fall either. So they include those that a method had
// when it was forgotten and that were not read before.
type totals struct {
	mu   sync.Mutex // readers may collect concurrently
	of   map[*labels]counts
	rows map[*labels]counts // those of the named methods when they were last read
}

// add adds what was counted since the last reading. sum must have been read before the rows. If it were read after them, calls
// in between would count in others although their methods have names.
func (t *totals) add(sum counts, rows map[*labels]counts) {
	for l, now := range rows {
		of, before := t.of[l], t.rows[l]
		of.add(now, 1)
		if !now.beganAgain(before) {
			of.add(before, -1)
		}
		t.of[l] = of
	}
	t.rows = rows
	for _, known := range t.of {
		sum.add(known, -1)
	}
	other := t.of[others]
	for n, rest := range sum {
		other[n] += max(rest, 0)
	}
	if other != (counts{}) {
		t.of[others] = other
	}
}
