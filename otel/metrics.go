package hedgeotel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unsafe"
	"weak"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stats"
)

// maxSeries is the maximum number of series of an instrument, besides method other.
// OpenTelemetry's SDK drops series beyond 2,000.
const maxSeries = 1900

type metrics struct {
	methods *names
	targets *names // alone
	of      [len(protocols)]instruments

	provider metric.MeterProvider // held so that no other provider can have its address

	mu         sync.Mutex // readers may collect concurrently
	schedulers []*scheduler
	gone       stats.Counts // of schedulers that were garbage collected
	series     int          // of decisions
}

// protocols begin the names of the instruments and attributes, by labels.protocol.
var protocols = [...]string{"grpc", "http"}

// instruments has the instruments of one protocol.
type instruments struct {
	hedges   metric.Int64Histogram
	losers   metric.Float64Histogram
	counters map[string]metric.Int64ObservableCounter
	gauges   map[string]metric.Float64ObservableGauge
}

// scheduler is the last reading of a scheduler.
type scheduler struct {
	weak.Pointer[hedge.Scheduler]
	sum   stats.Counts
	last  map[method]stats.Counts
	moved map[string]int64 // primaries, by target
}

type method struct{ target, name string }

// counts are the fields of stats.Counts: all are int64.
type counts [unsafe.Sizeof(stats.Counts{}) / 8]int64

func fields(of *stats.Counts) *counts { return (*counts)(unsafe.Pointer(of)) }

// outcomes are the values of the attribute outcome, by field. The totals of calls, of failed calls and
// of hedges have none.
var outcomes = func() (names [len(counts{})]string) {
	short := map[string]string{"HedgeWins": "won", "PrimaryWins": "lost", "BudgetExhausted": "no_budget",
		"OfHedges": "of_hedge", "Warmup": "learning"}
	word := regexp.MustCompile("(.)([A-Z])")
	for n, f := range reflect.VisibleFields(reflect.TypeFor[stats.Counts]()) {
		if f.Name != "Calls" && f.Name != "Hedged" && f.Name != "Hedges" && f.Name != "Failed" {
			names[n] = cmp.Or(short[f.Name], strings.ToLower(word.ReplaceAllString(f.Name, "${1}_${2}")))
		}
	}
	return names
}()

// counters and gauges are the instruments that are read when metrics are collected.
var counters = []struct{ name, unit, what string }{
	{"calls", "{call}", "Calls begun, hedged or not."},
	{"failed", "{call}", "Calls that failed for their callers, hedged or not."},
	{"sent", "{hedge}", "Hedges sent, including those that servers turned away."},
	{"decisions", "{decision}",
		"What became of hedged calls, and of hedges and calls that were held back, by outcome."},
	{"moved", "{call}", "Primaries sent past a silent connection."},
}

var gauges = []struct{ name, unit, what string }{
	{"delay", "s", "The current age at which a call gets its first hedge."},
	{"tail", "s", "The p99 of the latencies that callers got within the window."},
	{"tail.unhedged", "s", "The p99 latency without hedging, an estimate from slow calls that were not hedged."},
	{"tail.predicted", "s", "The p99 latency with hedging, as the trigger predicts it."},
	{"gain.unhedged", "s", "The p99 latency of the control group."},
	{"gain.unhedged.low", "s", "The lower bound of the 95% confidence interval of gain.unhedged."},
	{"gain.unhedged.high", "s", "The upper bound of the 95% confidence interval of gain.unhedged."},
	{"gain.hedged", "s", "The p99 latency of the calls beside the control group."},
	{"gain.hedged.low", "s", "The lower bound of the 95% confidence interval of gain.hedged."},
	{"gain.hedged.high", "s", "The upper bound of the 95% confidence interval of gain.hedged."},
	{"gain.saved", "s", "The mean time that hedging saves per call, by the control group."},
	{"gain.saved.low", "s", "The lower bound of the 95% confidence interval of gain.saved."},
	{"gain.saved.high", "s", "The upper bound of the 95% confidence interval of gain.saved."},
	{"saved", "", "The share of the tail that hedging is predicted to save, on logarithmic scales."},
	{"budget.tokens", "{token}", "Hedges that the target's budget can pay for now."},
	{"throttle.tokens", "{token}", "Tokens left in the target's throttle."},
	{"silent.connections", "{connection}", "Connections to the target that have fallen silent."},
}

// report reports the value of a gauge if it is known.
type report func(known bool, gauge string, value float64)

// report returns a report under l. Method other has no gauges.
func (m *metrics) report(to metric.Observer, l *labels) report {
	return func(known bool, gauge string, value float64) {
		if known && l.single {
			to.ObserveFloat64(m.of[l.protocol].gauges[gauge], value, l.option)
		}
	}
}

func readMethod(m *stats.Method, report report) {
	chosen := m.Choice.Probability > 0
	report(m.Delay > 0, "delay", m.Delay.Seconds())
	report(m.Recent.P99 > 0, "tail", m.Recent.P99.Seconds())
	report(chosen && m.Choice.UnhedgedTail > 0, "tail.unhedged", m.Choice.UnhedgedTail.Seconds())
	report(chosen, "tail.predicted", m.Choice.PredictedTail.Seconds())
	report(chosen, "saved", m.Choice.Saved)
	g := cmp.Or(m.Gain, &stats.Gain{})
	for of, i := range map[string]stats.Interval{"unhedged": g.Unhedged, "hedged": g.Hedged, "saved": g.Saved} {
		report(g.Measured, "gain."+of, i.Value.Seconds())
		report(g.Measured, "gain."+of+".low", i.Low.Seconds())
		report(g.Measured, "gain."+of+".high", i.High.Seconds())
	}
}

func readTarget(m *stats.Method, report report) {
	silent := 0
	for _, s := range m.Silent {
		silent += s.Connections
	}
	report(true, "budget.tokens", m.Tokens)
	report(m.ThrottleMax > 0, "throttle.tokens", m.ThrottleTokens)
	report(m.Connections > 0 || silent > 0, "silent.connections", float64(silent)) // there is a policy
}

// providers has the metrics of each provider, by its address. Schedulers that share a provider
// share counters, so that no counter falls when one of the schedulers is garbage collected.
var (
	providersMu sync.Mutex
	providers   = map[uintptr]weak.Pointer[metrics]{}
)

// metricsOf returns the metrics of the provider of o. A provider that is not a pointer, such as
// OpenTelemetry's no-op provider, gets new metrics each time.
func metricsOf(o Options) (*metrics, error) {
	address := uintptr(0)
	if v := reflect.ValueOf(o.MeterProvider); v.Kind() == reflect.Pointer {
		address = v.Pointer()
	}
	providersMu.Lock()
	defer providersMu.Unlock()
	if m := providers[address].Value(); m != nil && m.provider == o.MeterProvider {
		m.methods.allow(o.MaxMethods)
		m.targets.allow(o.MaxMethods)
		return m, nil
	}
	m, err := newMetrics(o)
	if err != nil || address == 0 {
		return m, err
	}
	maps.DeleteFunc(providers, func(_ uintptr, m weak.Pointer[metrics]) bool { return m.Value() == nil })
	providers[address] = weak.Make(m)
	return m, nil
}

func newMetrics(o Options) (*metrics, error) {
	m := &metrics{provider: o.MeterProvider, methods: newNames(o.MaxMethods), targets: newNames(o.MaxMethods)}
	meter := o.MeterProvider.Meter("github.com/grpchedge/hedge/otel")
	var observed []metric.Observable
	var errs []error
	var err error
	for n, protocol := range protocols {
		of, prefix := &m.of[n], protocol+".client."
		of.counters = map[string]metric.Int64ObservableCounter{}
		of.gauges = map[string]metric.Float64ObservableGauge{}
		of.hedges, err = meter.Int64Histogram(prefix+"call.hedges", metric.WithUnit("{hedge}"),
			metric.WithDescription("Number of hedges sent during the client call. Calls without a hedge are not counted."),
			metric.WithExplicitBucketBoundaries(1, 2, 3, 4, 5))
		errs = append(errs, err)
		of.losers, err = meter.Float64Histogram(prefix+"hedge.loser.duration", metric.WithUnit("s"),
			metric.WithDescription("How long losing attempts ran before they were canceled."),
			metric.WithExplicitBucketBoundaries(opentelemetry.DefaultLatencyBounds...))
		errs = append(errs, err)
		for _, c := range counters {
			of.counters[c.name], err = meter.Int64ObservableCounter(prefix+"hedge."+c.name, metric.WithUnit(c.unit),
				metric.WithDescription(c.what))
			observed, errs = append(observed, of.counters[c.name]), append(errs, err)
		}
		for _, g := range gauges {
			of.gauges[g.name], err = meter.Float64ObservableGauge(prefix+"hedge."+g.name, metric.WithUnit(g.unit),
				metric.WithDescription(g.what))
			observed, errs = append(observed, of.gauges[g.name]), append(errs, err)
		}
	}
	_, err = meter.RegisterCallback(m.observe, observed...)
	return m, errors.Join(append(errs, err)...)
}

func (m *metrics) watch(s *hedge.Scheduler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.schedulers = append(m.schedulers, &scheduler{Pointer: weak.Make(s)})
}

// observe reports all schedulers. It holds m.mu while it reads counts, so that readings are in
// order.
func (m *metrics) observe(_ context.Context, to metric.Observer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.schedulers = slices.DeleteFunc(m.schedulers, func(w *scheduler) bool {
		if s := w.Value(); s != nil {
			w.sum = s.Stats() // before the methods
			m.read(to, w, s.Methods())
			return false
		}
		add(&m.gone, w.sum)
		return true
	})
	if len(m.schedulers) == 0 {
		return nil // counters go on from here with the next scheduler
	}
	for _, t := range m.targets.all() {
		if t.single && (t.moved > 0 || t.connected) {
			to.ObserveInt64(m.of[t.protocol].counters["moved"], t.moved, t.option)
		}
	}

	// Method other gets the rest of the schedulers' own counts, for example of a method removed
	// from memory since the last reading. The sum was read before the methods.
	sum, all := m.gone, m.methods.all()
	for _, w := range m.schedulers {
		add(&sum, w.sum)
	}
	for n, left := range fields(&sum) {
		for _, l := range all {
			left -= fields(&l.total)[n]
		}
		fields(&m.methods.others.total)[n] += max(left, 0)
	}
	m.count(to, all)
	return nil
}

func add(sum *stats.Counts, of stats.Counts) {
	for n, count := range fields(&of) {
		fields(sum)[n] += count
	}
}

// read adds the counts of a scheduler's methods since the last reading, and reports their gauges.
// m.mu must be held.
func (m *metrics) read(to metric.Observer, w *scheduler, rows []stats.Method) {
	last, moved := map[method]stats.Counts{}, map[string]int64{}
	for i := range rows {
		row := &rows[i]
		if row.Names == (stats.Names{}) { // its first call is about to begin
			continue
		}
		l, key := m.methods.of(row.Names), method{row.Target, row.Method}
		last[key] = l.add(row.Counts, w.last[key])
		l.selected = l.selected || row.Calls > row.NotSelected+row.NoDescriptor
		readMethod(row, m.report(to, l))
		if _, done := moved[row.Target]; done {
			continue
		}
		t := m.targets.of(stats.Names{Target: row.Names.Target})
		readTarget(row, m.report(to, t))
		moved[row.Target] = row.Moved
		t.moved += max(row.Moved-w.moved[row.Target], 0)
		t.connected = t.connected || row.Connections > 0
	}
	w.last, w.moved = last, moved
}

// count reports the counters. A decision has a series once it has happened. Beyond maxSeries,
// further decisions count in other.
func (m *metrics) count(to metric.Observer, all []*labels) {
	var rest counts
	for _, l := range all { // other is the last
		of := m.of[l.protocol].counters
		if l.total.Calls > 0 {
			to.ObserveInt64(of["calls"], l.total.Calls, l.option)
			to.ObserveInt64(of["failed"], l.total.Failed, l.option)
		}
		if l.total.Hedges > 0 || l.selected {
			to.ObserveInt64(of["sent"], l.total.Hedges, l.option)
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
				l.decisions[n] = l.with("outcome", name)
				m.series++
			}
			to.ObserveInt64(of["decisions"], count, l.decisions[n])
		}
	}
}

// add adds the counts of a method since before, its last reading, and returns the counts to compare
// the next reading with. If a count has fallen, the method was removed from memory and began at 0.
func (l *labels) add(now, before stats.Counts) stats.Counts {
	for n, was := range fields(&before) {
		if fields(&now)[n] < was {
			before = stats.Counts{}
			break
		}
	}
	for n, was := range fields(&before) {
		fields(&l.total)[n] += fields(&now)[n] - was
	}
	return now
}
