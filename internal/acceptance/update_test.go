package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

// hedgesOf makes one call that takes a second and returns how many hedges it got.
func hedgesOf(t *testing.T, s *hedge.Scheduler, ctx context.Context, target, method string) int64 {
	t.Helper()
	before := s.Stats().Hedges
	if _, err := hedge.Do(ctx, s, target, method, hedgetest.Taking(time.Second)); err != nil {
		t.Fatal(err)
	}
	return s.Stats().Hedges - before
}

func TestRule20_TheMostSpecificWins(t *testing.T) {
	most := hedge.WithMaxHedges
	rules := with{
		hedge.WithTargetOptions("dns:///*", most(3)),
		hedge.WithTargetOptions("dns:///b*", most(4)),
		hedge.WithTargetOptions("dns:///off", hedge.WithOff(true)),
		hedge.WithMethodOptions("/s/*", most(1)),
		hedge.WithMethodOptions("/s/Two*", most(2)),
		hedge.WithMethodOptions("/*/TwoMore", most(3)),
		hedge.WithMethodOptions("/s/TwoButNone*", most(1)),
		hedge.WithMethodOptions("/s/TwoButNone", hedge.WithOff(true)),
	}
	for range rules {
		rules = append(rules[1:], rules[0])
		s := hedgetest.Fixed(t, 10*ms, rules...)
		synctest.Test(t, func(t *testing.T) {
			for _, tc := range []struct {
				target, method string
				hedges         int64
				rules          string
			}{
				{target: "other", method: "/x/M", hedges: 2},
				{target: "dns:///a", method: "/x/M", hedges: 3, rules: "dns:///*"},
				{target: "dns:///bcd", method: "/x/M", hedges: 4, rules: "dns:///* dns:///b*"},
				{target: "dns:///a", method: "/s/M", hedges: 1, rules: "dns:///* /s/*"},
				{target: "dns:///b", method: "/s/M", hedges: 1, rules: "dns:///* dns:///b* /s/*"},
				{target: "other", method: "/s/TwoM", hedges: 2, rules: "/s/* /s/Two*"},
				{target: "other", method: "/s/TwoMore", hedges: 3, rules: "/s/* /s/Two* /*/TwoMore"},
				{target: "other", method: "/s/TwoButNone", rules: "/s/* /s/Two* /s/TwoButNone* /s/TwoButNone"},
				{target: "dns:///off", method: "/s/M", rules: "dns:///* dns:///off /s/*"},
			} {
				got := hedgesOf(t, s, t.Context(), tc.target, tc.method)
				rows := s.Methods()
				i := slices.IndexFunc(rows, func(m stats.Method) bool { return m.Target == tc.target && m.Method == tc.method })
				if rules := strings.Join(rows[i].Rules, " "); got != tc.hedges || rules != tc.rules {
					t.Errorf("%s %s: %d hedges by %q, want %d by %q", tc.target, tc.method, got, rules, tc.hedges, tc.rules)
				}
			}
		})
	}
}

// A mistake in an update keeps hedging neither on nor off: WithOff(true) beside it takes effect, for
// targets with options of their own too, until an update without a mistake.
func TestRule20_OffTakesEffectBesideAMistake(t *testing.T) {
	good := with{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithBudgetPercent(400),
		hedge.WithTargetOptions("own", hedge.WithMaxHedges(1))}
	for name, mistake := range map[string]hedge.Option{
		"another window":  hedge.WithWindow(time.Hour),
		"out of range":    hedge.WithMaxHedges(9),
		"not of updates":  hedge.WithLogger(slog.Default()),
		"no method":       nil,
		"another mistake": hedge.WithMethods("GET"),
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.New(t, good...)
			want := func(when string, other, own int64) {
				t.Helper()
				for target, want := range map[string]int64{"other": other, "own": own} {
					if got := hedgesOf(t, s, t.Context(), target, "/s/M"); got != want {
						t.Errorf("%s: %d hedges to %s, want %d", when, got, target, want)
					}
				}
			}
			want("at first", 2, 1)
			if err := s.Update(mistake, hedge.WithOff(false)); err == nil {
				t.Error("the mistake is no error")
			}
			want("after a mistake", 2, 1)
			err := s.Update(mistake, hedge.WithMaxHedges(-1), hedge.WithOff(true))
			if c := (*registry.Registry)(s).Configured(); err == nil || c.Refused != err || len(c.Options) != len(good)+1 {
				t.Errorf("the error is %v, recorded as %v, with the options %q", err, c.Refused, c.Options)
			}
			want("after a mistake beside WithOff", 0, 0)
			hedgetest.Update(t, s, good...)
			want("after an update", 2, 1)
		})
	}
}

// The page shows each option as it is written in Go.
func TestUpdate_TextsOfOptions(t *testing.T) {
	s := hedgetest.New(t, hedge.WithReadOnlyMethods("/s/Get*", "/s/M"), hedge.WithFailover(codes.Aborted), nil,
		hedge.WithWarmup(3, time.Second), hedge.WithTrigger(hedge.Auto(hedge.NoLaterThan(time.Second))),
		hedge.WithAcceptable(nil), hedge.WithTrace(new(hedge.Trace)), hedge.WithIdempotentOnly(),
		hedge.WithTargetOptions("dns:///*", hedge.WithHedgeLimit(7, time.Minute),
			hedge.WithTrigger(hedge.Fixed(time.Millisecond)), hedge.WithOff(true)))
	want := []string{`WithReadOnlyMethods("/s/Get*", "/s/M")`, `WithFailover(Aborted)`, `WithWarmup(3, 1s)`,
		`WithTrigger(Auto(NoLaterThan(1s)))`, `WithAcceptable()`, `WithTrace()`, `WithIdempotentOnly()`,
		`WithTargetOptions("dns:///*", WithHedgeLimit(7, 1m0s), WithTrigger(Fixed(1ms)), WithOff(true))`}
	if got := (*registry.Registry)(s).Configured().Options; !slices.Equal(got, want) {
		t.Errorf("the options are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The window and the number of methods can change until the first call.
func TestUpdate_BeforeTheFirstCall(t *testing.T) {
	s := hedgetest.New(t, hedge.WithOff(true))
	hedgetest.Update(t, s, hedge.WithAllMethods(), hedge.WithWindow(time.Hour), hedge.WithMaxMethods(7))
	if c := (*registry.Registry)(s).Config(); c.Window != time.Hour || c.MaxMethods != 7 || c.Off {
		t.Errorf("a window of %v, %d methods, off %v; want those of the update", c.Window, c.MaxMethods, c.Off)
	}
	hedgetest.Update(t, s, hedge.WithAllMethods())
	if c := (*registry.Registry)(s).Config(); c.Window != time.Hour || c.MaxMethods != 7 {
		t.Errorf("a window of %v, %d methods; an update without them must keep them", c.Window, c.MaxMethods)
	}
}

func TestUpdate_Errors(t *testing.T) {
	s := hedgetest.All(t, hedge.WithWindow(time.Minute))
	(*registry.Registry)(s).Method("t", "/s/M", time.Now())
	all := hedge.WithAllMethods()
	for _, tc := range []struct {
		want    string // "": no error
		options []hedge.Option
	}{
		{"", with{all}},
		{"", with{all, hedge.WithWindow(time.Minute)}},
		{"WithWindow(1h0m0s): must be 1m0s, as in the first call", with{all, hedge.WithWindow(time.Hour)}},
		{"WithMaxMethods(10000)", with{all, hedge.WithMaxMethods(10_000)}},
		{"WithMaxHedges(9)", with{all, hedge.WithMaxHedges(9)}},
		{"option that selects methods", with{hedge.WithMaxHedges(1)}},
		{"WithTargetName", with{all, hedge.WithTargetName(strings.ToLower)}},
		{"WithTrace: must be given to New", with{all, hedge.WithTrace(new(hedge.Trace))}},
		{"WithLogger: must be given to New", with{all, hedge.WithLogger(slog.Default())}},
		{"given twice", with{all, hedge.WithMethodOptions("/s/M"), hedge.WithMethodOptions("/s/M")}},
	} {
		before := fmt.Sprint((*registry.Registry)(s).Config())
		err := s.Update(tc.options...)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
		if now := fmt.Sprint((*registry.Registry)(s).Config()); err != nil && now != before {
			t.Errorf("%s: the configuration was %s, and is %s", tc.want, before, now)
		}
	}
	if err := (*hedge.Scheduler)(nil).Update(all); err == nil {
		t.Error("no error for a nil scheduler")
	}
}

// A pause by a switch, by Pause or by the environment, stops all hedges until Resume. A paused
// scheduler still learns.
func TestPause(t *testing.T) {
	for value, disabled := range map[string]bool{"": false, "0": false, "false": false, "1": true, "yes": true} {
		t.Setenv("HEDGE_DISABLED", value)
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))
			hedges := func(want int64, paused string) {
				got := hedgesOf(t, s, t.Context(), "t", "/s/M")
				if by := s.Methods()[0].PausedBy; got != want || by != paused {
					t.Errorf("HEDGE_DISABLED=%q: %d hedges, paused by %q; want %d, %q", value, got, by, want, paused)
				}
			}
			if disabled {
				hedges(0, "HEDGE_DISABLED")
				s.Resume()
			}
			hedges(1, "")
			s.Pause()
			hedges(0, "Pause")
			hedgesOf(t, s, t.Context(), "new", "/s/M")
			if p50, ok := s.Latency("new", "/s/M", 0.5); !ok || !within(p50, time.Second, 0.01) {
				t.Errorf("learned %v; a paused scheduler must still learn", p50)
			}
		})
	}
}

// The file {"off": true} stops all hedges, also at a program's start, and needs no option that
// selects methods. Calls are learned until another file selects methods. No rule hedges a method
// that is not selected.
func TestOff_NeedsNoSelection(t *testing.T) {
	parse := func(file string) []hedge.Option {
		opts, err := config.Parse([]byte(file))
		if err != nil {
			t.Fatal(err)
		}
		return opts
	}
	synctest.Test(t, func(t *testing.T) {
		const on = `{"readOnlyMethods": ["/s/M"], "trigger": {"percentile": 0.5}, "budgetPercent": 400, "maxHedges": 1}`
		var l logged
		s := hedgetest.New(t, append(parse(`{"off": true}`), l.option())...)
		after := hedge.NewContext(t.Context(), hedge.After(ms))
		for _, step := range []struct {
			file   string
			hedges int64
			after  bool // a call with the option After is hedged
		}{
			{on, 1, true},
			{`{"off": true}`, 0, false},
			{on, 1, true},
			{`{"off": true, "methodOptions": {"/s/M": {"off": false}}, "warmup": {"calls": 0, "delay": "1ms"}}`, 0, true},
			{`{"off": true, "targetOptions": {"t": {"off": false}}, "warmup": {"calls": 0, "delay": "1ms"}}`, 0, true},
		} {
			for range 60 {
				hedgetest.Call(t, s, "t", "/s/M", 10*ms)
				hedgetest.Call(t, s, "t", "/s/Write", 10*ms)
			}
			updates := func(line string) bool { return strings.Contains(line, "options updated") }
			if logged := slices.DeleteFunc(l.lines(), updates); len(logged) > 0 {
				t.Errorf("before %s: logged %q", step.file, logged)
			}
			hedgetest.Update(t, s, parse(step.file)...)
			for range 20 { // earn the cost of the hedges
				hedgetest.Call(t, s, "t", "/s/M", 10*ms)
			}
			if a, b := hedgesOf(t, s, t.Context(), "t", "/s/M"), hedgesOf(t, s, after, "t", "/s/M"); a != step.hedges ||
				b > 0 != step.after || hedgesOf(t, s, t.Context(), "t", "/s/Write") != 0 {
				t.Errorf("%s: %d hedges, and %d with After; %+v", step.file, a, b, s.Methods())
			}
		}
	})
	for _, opt := range []hedge.Option{nil, hedge.WithDryRun(true), hedge.WithOff(false),
		hedge.WithMethodOptions("/s/M", hedge.WithOff(true)), hedge.WithTargetOptions("t", hedge.WithOff(true))} {
		if _, err := hedge.New(opt); err == nil || !strings.Contains(err.Error(), "option that selects methods") {
			t.Errorf("the error without a selection is %v", err)
		}
	}
	for _, opt := range []hedge.Option{hedge.WithMethods("/a/B"), hedge.WithReadOnlyMethods("/a/B"),
		hedge.WithIdempotentOnly(), hedge.WithServiceConfig("{}"), hedge.WithAllMethods()} {
		hedgetest.New(t, opt)
	}
}

// TestUpdate_KeepsTracesAndLoggers updates a scheduler without its trace and its logger, and then
// with others: the trace and the logger of New get all calls, once, and the others none.
func TestUpdate_KeepsTracesAndLoggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent [2]int
		var logs [2]logged
		common := with{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)),
			hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)}
		telemetry := func(n int) []hedge.Option {
			return append(common, logs[n].option(),
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(stats.HedgeSent) { sent[n]++ }}))
		}
		s := hedgetest.New(t, telemetry(0)...)
		for n, opts := range []with{common, telemetry(0), telemetry(1)} {
			hedgetest.Update(t, s, append(opts, hedgetest.Throttle(2, 0.001))...)
			hedgesOf(t, s, t.Context(), "t", "/s/M")
			if sent[0] != n+1 || sent[1] != 0 || s.Stats().Hedges != int64(n+1) {
				t.Errorf("update %d: the traces got %v hedges", n, sent)
			}
		}
		for range 2 { // the throttle closes
			_, _ = hedge.Do(t.Context(), s, "t", "/s/M", func(context.Context) (int, error) { return 0, errors.New("down") })
		}
		hedgesOf(t, s, t.Context(), "t", "/s/M")
		if a, b := logs[0].lines(), logs[1].lines(); len(a) != 2 ||
			!strings.Contains(a[1], "hedge throttle active") || len(b) != 0 {
			t.Errorf("the loggers have %q and %q", a, b)
		}
	})
}

func straggler(t testing.TB) testserver.Distribution {
	t.Helper()
	return testserver.DistributionT(t, "straggler")
}

// isHedge reports whether ctx is the context of a hedge.
func isHedge(ctx context.Context) bool { return simulation.AttemptOf(ctx) > 0 }

// TestRule13_WhatTeaches goes through the ways in which a primary ends. Each scheduler sees two
// calls that take 100 ms and then one that ends in its own way after 10 ms: an observation there
// makes 10 ms the 25% quantile, a lower bound leaves 100 ms.
func TestRule13_WhatTeaches(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		gone bool // the caller gave up
		cut  bool // a hedge won
		off  grpc.CallOption
		want time.Duration
	}{
		{name: "switched off", off: hedge.Off(), want: 100 * ms},
		{name: "OK", want: 10 * ms},
		{name: "an answer that is an error", err: status.Error(codes.NotFound, ""), want: 10 * ms},
		{name: "a fast failure", err: status.Error(codes.Unavailable, ""), want: 100 * ms},
		{name: "an error without a status", err: errors.New("no status"), want: 100 * ms},
		{name: "the caller gave up", err: status.Error(codes.Canceled, ""), gone: true, want: 100 * ms},
		{name: "answered as the caller gave up", gone: true, want: 10 * ms},
		{name: "a hedge won", cut: true, want: 100 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithMaxHedges(0))
			hedgetest.Call(t, s, target, method, 100*ms)
			hedgetest.Call(t, s, target, method, 100*ms)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := begin(ctx, s, tc.off)
			time.Sleep(10 * ms)
			if tc.gone {
				cancel()
			}
			if tc.cut {
				hedgetest.CutShort(c, c.Age())
			} else {
				c.End(hcall.Completion{Err: tc.err})
			}
			if got, ok := s.Latency(target, method, 0.25); !ok || !within(got, tc.want, 0.01) {
				t.Errorf("p25 %v, want %v", got, tc.want)
			}
		})
	}
}

// With a percentile, nothing that is learned may move the hedges of a call in flight.
func TestRule20_ACallInFlightKeepsItsDelay(t *testing.T) {
	half := hedge.WithTrigger(hedge.Percentile(0.5))
	for _, update := range []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.99)), half} {
		synctest.Test(t, func(t *testing.T) {
			var at time.Duration
			opts := with{hedge.WithAllMethods(), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)}
			s := hedgetest.New(t, append(opts, half,
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(e stats.HedgeSent) { at = e.Age }}))...)
			for range 40 {
				hedgetest.Call(t, s, target, method, 10*ms)
			}
			time.AfterFunc(5*ms, func() {
				hedgetest.Update(t, s, append(opts, update)...)
				for range 60 { // which teach that calls take 60 ms
					begin(t.Context(), s).End(hcall.Completion{Age: 60 * ms})
				}
			})
			hedgetest.Call(t, s, target, method, 200*ms)
			if !within(at, 10*ms, 0.03) {
				t.Errorf("the hedge was sent at %v, want 10ms", at)
			}
		})
	}
}

// Calls in flight keep their hedges when an update switches hedging off, in whatever way. Calls
// that begin afterwards have none.
func TestRule20_CallsInFlightKeepTheirHedges(t *testing.T) {
	const calls = 20
	budget := hedge.WithBudgetPercent
	of := func(opt hedge.Option) hedge.Option { return hedge.WithMethodOptions(method, opt) }
	for _, tc := range []struct {
		name          string
		first, update []hedge.Option
	}{
		{"WithMaxHedges(0)", nil, with{hedge.WithMaxHedges(0)}},
		{"WithOff", nil, with{of(hedge.WithOff(true))}},
		{"WithBudgetPercent(0)", nil, with{budget(0)}},
		{"WithBudgetPercent(0) for the method", with{of(budget(100))}, with{of(budget(0))}},
		{"WithBudgetPercent(0), but not for the method", with{of(budget(100))}, with{of(budget(100)), budget(0)}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			opts := with{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)), budget(100), hedge.WithMaxHedges(1)}
			s := hedgetest.New(t, append(opts, tc.first...)...)
			var inFlight sync.WaitGroup
			for range calls {
				inFlight.Go(func() { hedgetest.Call(t, s, target, method, 200*ms) })
			}
			time.Sleep(5 * ms)
			hedgetest.Update(t, s, append(opts, tc.update...)...)
			hedgetest.Call(t, s, target, method, ms) // so that the update has reached the method
			inFlight.Wait()
			inTime := s.Stats().Hedges
			if later := hedgesOf(t, s, t.Context(), target, method); inTime != calls || later != 0 {
				t.Errorf("%d calls in flight had %d hedges, and a later one %d", calls, inTime, later)
			}
		})
	}
}

// A call ends by the options that were in force when it began, though an update replaces them
// before any attempt has ended: which statuses end it, which answers are accepted, whether a hedge
// may answer with an error. And it asks the functions of these options.
func TestRule20_ACallInFlightKeepsItsOptions(t *testing.T) {
	accepting := func(good string) hedge.Option {
		return hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool { return reply == good })
	}
	unavailable, notFound := status.Error(codes.Unavailable, ""), status.Error(codes.NotFound, "")
	nonFatal, aborted := hedge.WithNonFatalCodes(codes.Unavailable), hedge.WithNonFatalCodes(codes.Aborted)
	reads, writes := hedge.WithReadOnlyMethods(method), hedge.WithMethods(method)
	for _, tc := range []struct {
		name         string
		first, then  hedge.Option
		primary, end error // of the primary, and of the hedge
		want         string
	}{
		{name: "a status that does not end it", first: nonFatal, then: aborted, primary: unavailable, want: "hedge"},
		{name: "a status that ends it", first: aborted, then: nonFatal, primary: unavailable, want: "Unavailable"},
		{name: "an answer that is accepted", first: accepting("primary"), then: accepting("hedge"), want: "primary"},
		{name: "an answer that is not accepted", first: accepting("hedge"), then: accepting("primary"), want: "hedge"},
		{name: "a hedge's error that answers", first: reads, then: writes, end: notFound, want: "NotFound"},
		{name: "a hedge's error that does not", first: writes, then: reads, end: notFound, want: "primary"},
	} {
		synctest.Test(t, func(t *testing.T) {
			options := func(opt hedge.Option) []hedge.Option {
				return with{writes, opt, hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(1),
					hedge.WithBudgetPercent(400)}
			}
			s := hedgetest.New(t, options(tc.first)...)
			took := [2]time.Duration{30 * ms, 40 * ms}
			if tc.end != nil {
				took[1] = 5 * ms // it is the first to end
			}
			got, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (string, error) {
				n := simulation.AttemptOf(ctx)
				if n == 0 {
					hedgetest.Update(t, s, options(tc.then)...)
				}
				if _, err := hedgetest.Taking(took[n])(ctx); err != nil {
					return "", err
				}
				return []string{"primary", "hedge"}[n], []error{tc.primary, tc.end}[n]
			})
			if err != nil {
				got = status.Code(err).String()
			}
			if got != tc.want {
				t.Errorf("%s: the call ended with %q, want %q", tc.name, got, tc.want)
			}
		})
	}
	var asked string
	asking := func(name string) []hedge.Option {
		return with{writes,
			hedge.WithClass(func(context.Context, string, any) string { asked += name + "'s class"; return "c" })}
	}
	s := hedgetest.New(t, asking("the first")...)
	c := begin(t.Context(), s)
	hedgetest.Update(t, s, asking("the second")...)
	c.Inspect(nil)
	c.End(hcall.Completion{})
	if asked != "the first's class" {
		t.Errorf("asked were %s", asked)
	}
}
