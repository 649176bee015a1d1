package hedgeotel

import (
	"cmp"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge/stats"
)

// metrics are the instruments of one scheduler.
type metrics struct {
	meter  metric.Meter
	names  *names
	totals *totals
	hedges metric.Int64Histogram
	losers metric.Float64Histogram

	calls, decisions               metric.Int64ObservableCounter
	delay, tail, tokens, spendable metric.Float64ObservableGauge
	steppedDown                    metric.Int64ObservableGauge
	observed                       []metric.Observable
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

var outcomes = []struct {
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

func newMetrics(o Options) (*metrics, error) {
	names := newNames(cmp.Or(o.MaxMethods, defaultMethods))
	m := &metrics{meter: o.MeterProvider.Meter("github.com/grpchedge/hedge/otel"), names: names, totals: newTotals()}
	var errs [9]error
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
	m.delay, errs[4] = m.meter.Float64ObservableGauge("grpc.client.hedge.delay", metric.WithUnit("s"),
		metric.WithDescription("The age at which a call gets its first hedge now."))
	m.tail, errs[5] = m.meter.Float64ObservableGauge("grpc.client.hedge.tail", metric.WithUnit("s"),
		metric.WithDescription("The target percentile: unhedged (an estimate), predicted and measured."))
	m.steppedDown, errs[6] = m.meter.Int64ObservableGauge("grpc.client.hedge.stepped_down",
		metric.WithDescription("1 while hedging has stepped down, 0 otherwise."))
	m.spendable, errs[7] = m.meter.Float64ObservableGauge("grpc.client.hedge.budget.tokens", metric.WithUnit("{token}"),
		metric.WithDescription("Hedges that the target's budget pays for now."))
	m.tokens, errs[8] = m.meter.Float64ObservableGauge("grpc.client.hedge.throttle.tokens", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens left in the target's throttle."))
	m.observed = []metric.Observable{m.calls, m.decisions, m.delay, m.tail, m.steppedDown, m.spendable, m.tokens}
	return m, errors.Join(errs[:]...)
}

// observe reports the rows of a scheduler, and the sum of all its counts, which was read before them.
func (m *metrics) observe(to metric.Observer, sum stats.Counts, rows []stats.Method) {
	named := map[*labels]*stats.Counts{}
	last := ""
	for i := range rows {
		row := &rows[i]
		if l := m.names.of(row.Target, row.Method); l != others {
			named[l] = &row.Counts
			m.observeMethod(to, row, l)
		}
		if i == 0 || row.Target != last { // rows are sorted by target
			last = row.Target
			if target := m.names.ofTarget(row.Target); target != nil {
				to.ObserveFloat64(m.spendable, row.Tokens, target)
				if row.ThrottleMax > 0 {
					to.ObserveFloat64(m.tokens, row.ThrottleTokens, target)
				}
			}
		}
	}
	m.totals.add(&sum, named)
	m.totals.observe(m, to)
}

// observeMethod reports the gauges of a method.
func (m *metrics) observeMethod(to metric.Observer, row *stats.Method, l *labels) {
	if row.Delay > 0 {
		to.ObserveFloat64(m.delay, row.Delay.Seconds(), l.option)
	}
	if c := &row.Choice; c.UnhedgedTail > 0 {
		to.ObserveFloat64(m.tail, c.UnhedgedTail.Seconds(), l.option, unhedged)
		to.ObserveFloat64(m.tail, c.PredictedTail.Seconds(), l.option, predicted)
		to.ObserveFloat64(m.tail, c.MeasuredTail.Seconds(), l.option, measured)
		down := int64(0)
		if c.SteppedDown != stats.NotSteppedDown {
			down = 1
		}
		to.ObserveInt64(m.steppedDown, down, l.option)
	}
}

var (
	unhedged  = metric.WithAttributes(attribute.String("grpc.hedge.tail", "unhedged"))
	predicted = metric.WithAttributes(attribute.String("grpc.hedge.tail", "predicted"))
	measured  = metric.WithAttributes(attribute.String("grpc.hedge.tail", "measured"))
)
