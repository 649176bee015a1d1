package hedgeotel

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stats"
)

// metrics are the instruments of a provider.
type metrics struct {
	of       [len(protocols)]instruments
	meter    metric.Meter
	observed []metric.Observable // the gauges
}

// protocols begin the names of the instruments and attributes, by labels.protocol.
var protocols = [...]string{"grpc", "http"}

// instruments has the instruments of one protocol.
type instruments struct {
	hedges   metric.Int64Histogram
	losers   metric.Float64Histogram
	counters map[string]metric.Int64Counter
	gauges   map[string]metric.Float64ObservableGauge
}

// scheduler is the last reading of a scheduler.
type scheduler struct {
	weak.Pointer[hedge.Scheduler]

	mu    sync.Mutex // readers may collect concurrently
	last  map[method]stats.Counts
	moved map[string]int64 // primaries, by target
}

type method struct{ target, name string }

// labels are the attributes of a target and a method, or of a target alone.
type labels struct {
	attributes []attribute.KeyValue
	protocol   int // an index of protocols
}

func labelsOf(names stats.Names) *labels {
	l, prefix := &labels{}, "grpc."
	if strings.HasPrefix(names.Target, "http://") || strings.HasPrefix(names.Target, "https://") { // of package hedgehttp
		l.protocol, prefix = 1, "http.hedge." // http.target and http.method already have another meaning
	}
	l.attributes = []attribute.KeyValue{attribute.String(prefix+"target", names.Target)}
	if names.Method != "" {
		l.attributes = append(l.attributes, attribute.String(prefix+"method", names.Method))
	}
	return l
}

// with returns the attributes, and more.
func (l *labels) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(l.attributes), more...)...))
}

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

// counters and gauges are the instruments that change when metrics are collected.
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

// report returns a report under l.
func (m *metrics) report(to metric.Observer, l *labels) report {
	option := l.with()
	return func(known bool, gauge string, value float64) {
		if known {
			to.ObserveFloat64(m.of[l.protocol].gauges[gauge], value, option)
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

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter("github.com/grpchedge/hedge/otel")
	m := &metrics{meter: meter}
	var errs []error
	var err error
	for n, protocol := range protocols {
		of, prefix := &m.of[n], protocol+".client."
		of.counters = map[string]metric.Int64Counter{}
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
			of.counters[c.name], err = meter.Int64Counter(prefix+"hedge."+c.name, metric.WithUnit(c.unit),
				metric.WithDescription(c.what))
			errs = append(errs, err)
		}
		for _, g := range gauges {
			of.gauges[g.name], err = meter.Float64ObservableGauge(prefix+"hedge."+g.name, metric.WithUnit(g.unit),
				metric.WithDescription(g.what))
			m.observed, errs = append(m.observed, of.gauges[g.name]), append(errs, err)
		}
	}
	return m, errors.Join(errs...)
}

// watch reports a scheduler until it is garbage collected. From then on the provider keeps nothing of it.
func (m *metrics) watch(s *hedge.Scheduler) {
	w := &scheduler{Pointer: weak.Make(s)}
	registered, err := m.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		if s := w.Value(); s != nil {
			w.mu.Lock() // while counts are read, so that readings are in order
			defer w.mu.Unlock()
			m.read(ctx, to, w, s.Methods())
		}
		return nil
	}, m.observed...)
	if err != nil {
		otel.Handle(err)
		return
	}
	runtime.AddCleanup(s, func(r metric.Registration) { _ = r.Unregister() }, registered)
}

// read adds the counts of a scheduler's methods since the last reading, and reports their gauges.
// w.mu must be held.
func (m *metrics) read(ctx context.Context, to metric.Observer, w *scheduler, rows []stats.Method) {
	last, moved := map[method]stats.Counts{}, map[string]int64{}
	for i := range rows {
		row := &rows[i]
		if row.Names == (stats.Names{}) { // its first call is about to begin
			continue
		}
		l, key := labelsOf(row.Names), method{row.Target, row.Method}
		m.count(ctx, l, row.Counts, w.last[key])
		last[key] = row.Counts
		if row.Names.Method != other {
			readMethod(row, m.report(to, l))
		}
		if _, done := moved[row.Target]; done {
			continue
		}
		l = labelsOf(stats.Names{Target: row.Names.Target})
		readTarget(row, m.report(to, l))
		if moved[row.Target] = row.Moved; row.Moved > 0 || row.Connections > 0 {
			m.of[l.protocol].counters["moved"].Add(ctx, max(row.Moved-w.moved[row.Target], 0), l.with())
		}
	}
	w.last, w.moved = last, moved
}

// other is the name that gRPC's plugin gives to methods that it does not distinguish.
const other = "other"

// count adds the counts of a method since before, its last reading. If a count has fallen, the method
// was removed from memory and began at 0.
func (m *metrics) count(ctx context.Context, l *labels, now, before stats.Counts) {
	for n, was := range fields(&before) {
		if fields(&now)[n] < was {
			before = stats.Counts{}
			break
		}
	}
	of, option := m.of[l.protocol].counters, l.with()
	if now.Calls > 0 {
		of["calls"].Add(ctx, now.Calls-before.Calls, option)
		of["failed"].Add(ctx, now.Failed-before.Failed, option)
	}
	selected := now.Calls > now.NotSelected+now.NoDescriptor // there was a call that may be hedged
	if now.Hedges > 0 || selected {
		of["sent"].Add(ctx, now.Hedges-before.Hedges, option)
	}
	for n, name := range outcomes {
		more := fields(&now)[n] - fields(&before)[n]
		if name != "" && (more > 0 || selected && (name == "won" || name == "lost")) {
			of["decisions"].Add(ctx, more, l.with(attribute.String(protocols[l.protocol]+".hedge.outcome", name)))
		}
	}
}
