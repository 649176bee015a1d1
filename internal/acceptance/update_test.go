package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
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

// The most specific pattern wins, whatever the order, a method wins over its target, and a method
// at a target over both.
func TestRule20_TheMostSpecificWins(t *testing.T) {
	fixed := hedge.WithTrigger(hedge.Fixed(10 * time.Millisecond))
	most := hedge.WithMaxHedges
	budget := hedge.WithBudgetPercent(400)
	rules := []hedge.Option{
		hedge.WithTargetOptions("dns:///*", most(3)),
		hedge.WithTargetOptions("dns:///b*", most(4), hedge.WithMethodOptions("/s/At*", most(2))),
		hedge.WithTargetOptions("dns:///off", hedge.WithOff(true)),
		hedge.WithMethodOptions("/s/*", most(1)),
		hedge.WithMethodOptions("/s/Two*", most(2)),
		hedge.WithMethodOptions("/s/TwoButNone", hedge.WithOff(true)),
	}
	for range 20 {
		s := hedgetest.All(t, append(rules, fixed, budget)...)
		synctest.Test(t, func(t *testing.T) {
			for _, tc := range []struct {
				target, method string
				hedges         int64
				rules          []string
			}{
				{"other", "/x/M", 2, nil},
				{"dns:///a", "/x/M", 3, []string{"dns:///*"}},
				{"dns:///bcd", "/x/M", 4, []string{"dns:///*", "dns:///b*"}},
				{"dns:///a", "/s/M", 1, []string{"dns:///*", "/s/*"}},
				{"dns:///a", "/s/At", 1, []string{"dns:///*", "/s/*"}},
				{"dns:///b", "/s/At", 2, []string{"dns:///*", "dns:///b*", "/s/*", "/s/At*"}},
				{"other", "/s/TwoM", 2, []string{"/s/*", "/s/Two*"}},
				{"other", "/s/TwoButNone", 0, []string{"/s/*", "/s/Two*", "/s/TwoButNone"}},
				{"dns:///off", "/x/M", 0, []string{"dns:///*", "dns:///off"}},
				{"dns:///off", "/s/M", 0, []string{"dns:///*", "dns:///off", "/s/*"}},
			} {
				// The first calls earn the cost of the last one's hedges.
				for range 4 {
					hedgesOf(t, s, t.Context(), tc.target, tc.method)
				}
				if got := hedgesOf(t, s, t.Context(), tc.target, tc.method); got != tc.hedges {
					t.Errorf("%s %s: %d hedges, want %d", tc.target, tc.method, got, tc.hedges)
				}
				for _, row := range s.Methods() {
					if row.Target == tc.target && row.Method == tc.method {
						if diff := cmp.Diff(tc.rules, row.Rules); diff != "" {
							t.Errorf("%s %s: rules (-want +got):\n%s", tc.target, tc.method, diff)
						}
					}
				}
			}
		})
		rules = append(rules[1:], rules[0])
	}
}

func TestRules_Errors(t *testing.T) {
	for _, tc := range []struct {
		option hedge.Option
		want   []string
	}{
		{hedge.WithMethodOptions("Get", hedge.WithOff(true)), []string{`WithMethodOptions("Get")`, "/service/method"}},
		{hedge.WithMethodOptions("/s/[", hedge.WithOff(true)), []string{`WithMethodOptions("/s/[")`, "malformed"}},
		{hedge.WithTargetOptions("", hedge.WithOff(true)), []string{`WithTargetOptions("")`, "empty"}},
		{hedge.WithTargetOptions("\xff", hedge.WithOff(true)), []string{`WithTargetOptions("\xff")`, "UTF-8"}},
		{hedge.WithMethodOptions("/s/\xff", hedge.WithOff(true)), []string{`WithMethodOptions("/s/\xff")`, "UTF-8"}},
		{hedge.WithMethodOptions("/s/M", hedge.WithMaxHedges(7)),
			[]string{`WithMethodOptions("/s/M")`, "WithMaxHedges(7)", "0 to 4"}},
		{hedge.WithTargetOptions("a", hedge.WithMethodOptions("/s/M", hedge.WithWindow(time.Minute))),
			[]string{`WithTargetOptions("a")`, "WithWindow cannot be set for a method"}},
		{hedge.WithTargetOptions("a", hedge.WithMethodOptions("/s/M"), hedge.WithMethodOptions("/s/M")),
			[]string{`WithMethodOptions("/s/M")`, "given twice"}},
	} {
		_, err := hedge.New(hedge.WithAllMethods(), tc.option)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		}
	}
	twice := hedge.WithMethodOptions("/s/M", hedge.WithOff(true))
	if _, err := hedge.New(hedge.WithAllMethods(), twice, twice); err == nil ||
		!strings.Contains(err.Error(), "given twice") {
		t.Errorf("a pattern given twice: %v", err)
	}
}

func TestUpdate_Errors(t *testing.T) {
	s := hedgetest.All(t, hedge.WithWindow(time.Minute))
	all := hedge.WithAllMethods()
	for _, tc := range []struct {
		name    string
		options []hedge.Option
		want    string
	}{
		{"nothing of it given again", []hedge.Option{all}, ""},
		{"the same window", []hedge.Option{all, hedge.WithWindow(time.Minute)}, ""},
		{"another window", []hedge.Option{all, hedge.WithWindow(time.Hour)},
			"WithWindow(1h0m0s): must be 1m0s, as set by New"},
		{"more methods", []hedge.Option{all, hedge.WithMaxMethods(10_000)}, "WithMaxMethods(10000)"},
		{"nine hedges", []hedge.Option{all, hedge.WithMaxHedges(9)}, "WithMaxHedges(9)"},
		{"no methods", []hedge.Option{hedge.WithMaxHedges(1)}, "option that selects methods"},
		{"a name", []hedge.Option{all, hedge.WithTargetName(strings.ToLower)}, "WithTargetName"},
		{"a trace", []hedge.Option{all, hedge.WithTrace(new(hedge.Trace))}, "WithTrace: must be given to New"},
		{"a logger", []hedge.Option{all, hedge.WithLogger(slog.Default())}, "WithLogger: must be given to New"},
	} {
		before := fmt.Sprint((*registry.Registry)(s).Config())
		switch err := s.Update(tc.options...); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
			fmt.Sprint((*registry.Registry)(s).Config()) != before):
			t.Errorf("%s: error %v, want %q; the configuration was %v, and is %v", tc.name, err, tc.want, before,
				(*registry.Registry)(s).Config())
		}
	}
	if err := (*hedge.Scheduler)(nil).Update(all); err == nil {
		t.Error("no error for a nil scheduler")
	}
}

// A pause stops every target, and a scheduler that is paused still learns.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*time.Millisecond)), hedge.WithBudgetPercent(400),
			hedge.WithMaxHedges(1))
		for _, step := range []struct {
			do     func()
			paused string
			hedges int64
		}{{func() {}, "", 1}, {s.Pause, "Pause", 0}, {s.Resume, "", 1}, {s.Pause, "Pause", 0}} {
			step.do()
			for _, target := range []string{"a", "b"} {
				if got := hedgesOf(t, s, t.Context(), target, "/s/M"); got != step.hedges {
					t.Errorf("%s: %d hedges, want %d", target, got, step.hedges)
				}
			}
			if row := s.Methods()[0]; row.PausedBy != step.paused {
				t.Errorf("paused by %q, want %q", row.PausedBy, step.paused)
			}
		}
		hedgesOf(t, s, t.Context(), "new", "/s/M")
		if p50, ok := s.Latency("new", "/s/M", 0.5); !ok || !within(p50, time.Second, 0.01) {
			t.Errorf("learned %v; a paused scheduler still learns", p50)
		}
	})
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
		for n, step := range []struct {
			file   string
			hedges int64
		}{
			{on, 1},
			{`{"off": true}`, 0},
			{`{"off": true, "budgetPercent": 400}`, 0},
			{on, 1},
			{`{"off": true, "methodOptions": {"/s/M": {"off": false}}, "warmup": {"calls": 0, "delay": "1ms"}}`, 0},
			{`{"off": true, "targetOptions": {"t": {"off": false}}, "warmup": {"calls": 0, "delay": "1ms"}}`, 0},
		} {
			for range 60 {
				hedgetest.Call(t, s, "t", "/s/M", 10*time.Millisecond)
				hedgetest.Call(t, s, "t", "/s/Write", 10*time.Millisecond)
			}
			if logged := l.lines(); len(logged) > 0 {
				t.Errorf("step %d: logged %q", n, logged)
			}
			hedgetest.Update(t, s, parse(step.file)...)
			for range 3 { // earn the cost of a hedge
				hedgetest.Call(t, s, "t", "/s/M", 10*time.Millisecond)
			}
			if got := hedgesOf(t, s, t.Context(), "t", "/s/M"); got != step.hedges {
				t.Errorf("%s: %d hedges, want %d", step.file, got, step.hedges)
			}
			if got := hedgesOf(t, s, hedge.NewContext(t.Context(), hedge.After(time.Millisecond)), "t",
				"/s/M"); step.file[:6] == `{"off"` && n < 4 && got != 0 {
				t.Errorf("%s: %d hedges of a call with the option After", step.file, got)
			}
			if got := hedgesOf(t, s, t.Context(), "t", "/s/Write"); got != 0 {
				t.Errorf("%s: %d hedges of a write", step.file, got)
			}
		}
	})
	for _, file := range []string{`{}`, `{"off": false}`, `{"methodOptions": {"/s/M": {"off": true}}}`,
		`{"targetOptions": {"t": {"off": true}}}`} {
		if _, err := hedge.New(parse(file)...); err == nil || !strings.Contains(err.Error(), "option that selects methods") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestNew_DisabledByTheEnvironment(t *testing.T) {
	for value, want := range map[string]int64{"": 1, "0": 1, "false": 1, "1": 0, "true": 0, "yes": 0} {
		t.Setenv("HEDGE_DISABLED", value)
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*time.Millisecond)), hedge.WithMaxHedges(1))
		synctest.Test(t, func(t *testing.T) {
			if got := hedgesOf(t, s, t.Context(), "t", "/s/M"); got != want {
				t.Errorf("HEDGE_DISABLED=%q: %d hedges, want %d", value, got, want)
			}
		})
		if by := s.Methods()[0].PausedBy; (by == "HEDGE_DISABLED") != (want == 0) {
			t.Errorf("HEDGE_DISABLED=%q: paused by %q", value, by)
		}
		s.Resume()
		synctest.Test(t, func(t *testing.T) {
			if got := hedgesOf(t, s, t.Context(), "u", "/s/M"); got != 1 {
				t.Errorf("after Resume: %d hedges, want 1", got)
			}
		})
	}
}

// A call on behalf of a hedge is not hedged, whether the hedge is of another process or of this
// one.
func TestHedgesOfHedges(t *testing.T) {
	served := func(attempt string) context.Context {
		return metadata.NewIncomingContext(context.Background(), metadata.Pairs("grpc-previous-rpc-attempts", attempt))
	}
	for _, tc := range []struct {
		name string
		ctx  context.Context
		want int64
	}{
		{"for nobody", context.Background(), 1},
		{"for a primary", metadata.NewIncomingContext(context.Background(), metadata.Pairs("a", "b")), 1},
		{"for a hedge", served("1"), 0},
		{"for the third hedge", served("3"), 0},
		{"for a hedge, and the mark is removed", metadata.NewIncomingContext(served("1"), nil), 1},
	} {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*time.Millisecond)), hedge.WithMaxHedges(1))
		synctest.Test(t, func(t *testing.T) {
			if got := hedgesOf(t, s, tc.ctx, "t", "/s/M"); got != tc.want {
				t.Errorf("%s: %d hedges, want %d", tc.name, got, tc.want)
			}
			if got := s.Stats().OfHedges; got != 1-tc.want {
				t.Errorf("%s: %d counted as hedges of hedges", tc.name, got)
			}
		})
	}
}

// TestUpdate_KeepsTracesAndLoggers updates a scheduler without its trace and its logger, and then
// with others: the trace and the logger of New get all calls, once, and the others none.
func TestUpdate_KeepsTracesAndLoggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent [2]int
		var logs [2]logged
		common := []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)),
			hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)}
		telemetry := func(n int) []hedge.Option {
			return append(common, logs[n].option(),
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(stats.HedgeSent) { sent[n]++ }}))
		}
		s := hedgetest.New(t, telemetry(0)...)
		for n, opts := range [][]hedge.Option{common, telemetry(0), telemetry(1)} {
			hedgetest.Update(t, s, append(opts, hedgetest.Throttle(2, 0.001))...)
			hedgesOf(t, s, t.Context(), "t", "/s/M")
			if sent[0] != n+1 || sent[1] != 0 || s.Stats().Hedges != int64(n+1) {
				t.Errorf("update %d: the traces heard of %v hedges", n, sent)
			}
		}
		for range 2 { // the throttle closes
			_, _ = hedge.Do(t.Context(), s, "t", "/s/M", func(context.Context) (int, error) { return 0, errors.New("down") })
		}
		hedgesOf(t, s, t.Context(), "t", "/s/M")
		if a, b := logs[0].lines(), logs[1].lines(); len(a) != 1 ||
			!strings.Contains(a[0], "hedge throttle active") || len(b) != 0 {
			t.Errorf("the loggers have %q and %q", a, b)
		}
	})
}
