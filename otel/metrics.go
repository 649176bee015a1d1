package hedgeotel

import (
	"cmp"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"unsafe"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge/stats"
)

// maxSeries is the most series of an instrument. Beyond 2,000 OpenTelemetry's SDK gives series up. The series of others come on top.
const maxSeries = 1900

type metrics struct {
	meter   metric.Meter
	methods *names
	targets *names // alone
	hedges  metric.Int64Histogram
	losers  metric.Float64Histogram

	calls, sent, decisions, moved metric.Int64ObservableCounter
	gauges                        map[string]metric.Float64ObservableGauge
	observed                      []metric.Observable

	mu     sync.Mutex              // readers may collect concurrently
	last   map[method]stats.Counts // of the scheduler's methods, when they were read last
	passed map[string]int64        // primaries of the scheduler's targets that were moved, then
	series int                     // of decisions
}

type method struct{ target, name string }

// counts are the fields of stats.Counts: all are int64.
type counts [unsafe.Sizeof(stats.Counts{}) / 8]int64

func fields(of *stats.Counts) *counts { return (*counts)(unsafe.Pointer(of)) }

// outcomes are the names of fields as values of grpc.hedge.outcome. The totals of calls and hedges have none.
var outcomes = func() (names [len(counts{})]string) {
	short := map[string]string{"HedgeWins": "won", "PrimaryWins": "lost", "BudgetExhausted": "no_budget", "OfHedges": "of_hedge", "Warmup": "learning"}
	word := regexp.MustCompile("(.)([A-Z])")
	for n, f := range reflect.VisibleFields(reflect.TypeFor[stats.Counts]()) {
		if f.Name != "Calls" && f.Name != "Hedged" && f.Name != "Hedges" {
			names[n] = cmp.Or(short[f.Name], strings.ToLower(word.ReplaceAllString(f.Name, "${1}_${2}")))
		}
	}
	return names
}()

// gauges are those instruments that are read when metrics are collected.
var gauges = []struct{ name, unit, what string }{
	{"delay", "s", "The age at which a call gets its first hedge now."},
	{"tail", "s", "The target percentile: an estimate without hedging, predicted, and measured."},
	{"gain", "s", "What a control group measures: the target percentile with and without hedging, and the time saved per call."},
	{"saved", "", "The share of the time beyond the median that hedging is predicted to save, weighted towards the tail."},
	{"budget.tokens", "{token}", "Hedges that the target's budget pays for now."},
	{"throttle.tokens", "{token}", "Tokens left in the target's throttle."},
	{"silent.connections", "{connection}", "Connections to the target that have fallen silent."},
}

// A report reports a value of a gauge. If the gauge has several values, which names this one, as an attribute.
type report func(gauge string, value float64, which ...string)

// report reports gauges under the labels. Others have no gauges. A gauge of several values, nine at most, has only the first methods.
func (m *metrics) report(to metric.Observer, l *labels) report {
	return func(gauge string, value float64, which ...string) {
		option := l.option
		for _, w := range which {
			option = l.with("grpc.hedge."+gauge, w)
		}
		if l.single && (len(which) == 0 || l.number < maxSeries/9) {
			to.ObserveFloat64(m.gauges[gauge], value, option)
		}
	}
}

// read reports the values of the gauges of a method.
func read(m *stats.Method, report report) {
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
		for which, i := range map[string]stats.Interval{"unhedged": g.Unhedged, "hedged": g.Hedged, "saved": g.Saved} {
			report("gain", i.Value.Seconds(), which)
			report("gain", i.Low.Seconds(), which+"_low")
			report("gain", i.High.Seconds(), which+"_high")
		}
	}
}

// readTarget reports the values of the gauges of its target.
func readTarget(m *stats.Method, report report) {
	report("budget.tokens", m.Tokens)
	if m.ThrottleMax > 0 {
		report("throttle.tokens", m.ThrottleTokens)
	}
	if m.Connections == 0 && len(m.Silent) == 0 { // it has no policy
		return
	}
	silent := 0
	for _, s := range m.Silent {
		silent += s.Connections
	}
	report("silent.connections", float64(silent))
}

func newMetrics(o Options) (*metrics, error) {
	most := cmp.Or(o.MaxMethods, 1000)
	m := &metrics{
		meter:   o.MeterProvider.Meter("github.com/grpchedge/hedge/otel"),
		methods: newNames(most), targets: newNames(most),
		gauges: map[string]metric.Float64ObservableGauge{},
	}
	errs := make([]error, 2)
	m.hedges, errs[0] = m.meter.Int64Histogram("grpc.client.call.hedges", metric.WithUnit("{hedge}"),
		metric.WithDescription("Number of hedges sent during the client call. Calls without a hedge are not counted."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 4, 5))
	m.losers, errs[1] = m.meter.Float64Histogram("grpc.client.hedge.loser.duration", metric.WithUnit("s"),
		metric.WithDescription("How long attempts had run that were cancelled because another one was faster."),
		metric.WithExplicitBucketBoundaries(opentelemetry.DefaultLatencyBounds...))
	counter := func(name, unit, what string) metric.Int64ObservableCounter {
		c, err := m.meter.Int64ObservableCounter("grpc.client.hedge."+name, metric.WithUnit(unit), metric.WithDescription(what))
		m.observed, errs = append(m.observed, c), append(errs, err)
		return c
	}
	m.calls = counter("calls", "{call}", "Calls begun, hedged or not.")
	m.sent = counter("sent", "{hedge}", "Hedges sent.")
	m.decisions = counter("decisions", "{decision}", "What became of hedged calls, and of hedges and calls that were held back, by outcome.")
	m.moved = counter("moved", "{call}", "Primaries sent past a silent connection.")
	for _, g := range gauges {
		made, err := m.meter.Float64ObservableGauge("grpc.client.hedge."+g.name, metric.WithUnit(g.unit), metric.WithDescription(g.what))
		m.gauges[g.name], m.observed, errs = made, append(m.observed, made), append(errs, err)
	}
	return m, errors.Join(errs...)
}

// observe reports the rows of a scheduler, and the sum of all its counts, which was read before them. m.mu must be held.
func (m *metrics) observe(to metric.Observer, sum stats.Counts, rows []stats.Method) {
	last, passed := map[method]stats.Counts{}, map[string]int64{}
	for i := range rows {
		row := &rows[i]
		if row.Names == (stats.Names{}) { // it is known from a snapshot
			continue
		}
		l, key := m.methods.of(row.Names), method{row.Target, row.Method}
		last[key] = l.add(row.Counts, m.last[key])
		l.selected = l.selected || row.Calls > row.NotSelected+row.NoDescriptor
		read(row, m.report(to, l))
		if _, done := passed[row.Target]; done {
			continue
		}
		t := m.targets.of(stats.Names{Target: row.Names.Target})
		readTarget(row, m.report(to, t))
		passed[row.Target] = row.Moved
		if t.moved += max(row.Moved-m.passed[row.Target], 0); t.single && (t.moved > 0 || row.Connections > 0) {
			to.ObserveInt64(m.moved, t.moved, t.option)
		}
	}
	m.last, m.passed = last, passed

	// Others have the rest of the scheduler's own counts, which never fall. So they include what a method had counted since the last
	// reading when it was forgotten. The sum was read first: calls since then have been read with their methods.
	all := m.methods.all()
	for n, left := range fields(&sum) {
		for _, l := range all {
			left -= fields(&l.total)[n]
		}
		fields(&m.methods.others.total)[n] += max(left, 0)
	}
	m.count(to, all)
}

// count reports the counters. A decision has a series once it has happened. If there are too many, further ones go to others.
func (m *metrics) count(to metric.Observer, all []*labels) {
	var rest counts
	for _, l := range all { // others are the last
		if l.total.Calls > 0 {
			to.ObserveInt64(m.calls, l.total.Calls, l.option)
		}
		if l.total.Hedges > 0 || l.selected {
			to.ObserveInt64(m.sent, l.total.Hedges, l.option)
		}
		last := l == m.methods.others
		both := l.total.HedgeWins+l.total.PrimaryWins > 0 || l.selected && m.series < maxSeries/2
		for n, name := range outcomes {
			count := fields(&l.total)[n]
			if last {
				count += rest[n]
			}
			if l.decisions[n] == nil {
				switch {
				case name == "" || count == 0 && (!both || name != "won" && name != "lost"):
					continue
				case m.series >= maxSeries && !last:
					rest[n] += count
					continue
				}
				l.decisions[n] = l.with("grpc.hedge.outcome", name)
				m.series++
			}
			to.ObserveInt64(m.decisions, count, l.decisions[n])
		}
	}
}

// add adds what a method has counted since its counts were read last, and returns those to compare the next ones with. If a count has
// fallen, the method was forgotten and has come back, and begins again at 0. But a count of hedges may fall by one.
func (l *labels) add(now, before stats.Counts) stats.Counts {
	for n, was := range fields(&before) {
		if fields(&now)[n] < was && (outcomes[n] != "" || now.Calls < before.Calls) {
			before = stats.Counts{}
			break
		}
	}
	for n, was := range fields(&before) {
		is := &fields(&now)[n]
		fields(&l.total)[n] += max(*is-was, 0)
		*is = max(*is, was)
	}
	return now
}
