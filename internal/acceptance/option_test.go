package acceptance_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// TestNew_Ranges has the ends of each option's range, which work, and values beyond them: the error
// begins with the option and the value.
func TestNew_Ranges(t *testing.T) {
	const all = math.MaxInt // of an int, which has 32 bits on some machines
	trigger := hedge.WithTrigger
	policy := `{"methodConfig": [{"name": [{"service": "a", "method": "B"}], "hedgingPolicy": {"maxAttempts": 1}}]}`
	off := hedge.WithOff(true)
	for want, opts := range map[string]with{
		"": {nil, trigger(hedge.Percentile(math.SmallestNonzeroFloat64)),
			trigger(hedge.Percentile(math.Nextafter(1, 0))), trigger(hedge.Fixed(0)), trigger(hedge.Fixed(all)),
			trigger(hedge.Auto(nil)), trigger(hedge.Auto(hedge.NoLaterThan(all))),
			hedge.WithMaxHedges(0), hedge.WithMaxHedges(4),
			hedge.WithBudgetPercent(0), hedge.WithBudgetPercent(400), hedge.WithMinDelay(0), hedge.WithMinDelay(all),
			hedge.WithControl(100), hedge.WithHedgeLimit(1, ms), hedge.WithHedgeLimit(all, ms), hedge.WithWarmup(0, 0),
			hedge.WithWarmup(all, all), hedge.WithWindow(10 * ms), hedge.WithWindow(all), hedge.WithMaxMethods(1),
			hedge.WithMaxMethods(all), hedge.WithNonFatalCodes(), hedge.WithFailover()},
		"WithTrigger(Percentile(0)): quantile must be between 0 and 1": {trigger(hedge.Percentile(0))},
		"WithTrigger(Percentile(1)): quantile must be between 0 and 1": {trigger(hedge.Percentile(1))},
		"WithTrigger(Percentile(NaN)): quantile must be":               {trigger(hedge.Percentile(math.NaN()))},
		"WithTrigger(Fixed(-1s)): delay must not be negative":          {trigger(hedge.Fixed(-time.Second))},
		"NoLaterThan(0s): must be positive":                            {trigger(hedge.Auto(hedge.NoLaterThan(0)))},
		"NoLaterThan(-1s): must be positive": {
			trigger(hedge.Auto(hedge.NoLaterThan(-time.Second)))},
		"WithMaxHedges(-1)":        {hedge.WithMaxHedges(-1)},
		"WithMaxHedges(5)":         {hedge.WithMaxHedges(5)},
		"WithBudgetPercent(-1)":    {hedge.WithBudgetPercent(-1)},
		"WithBudgetPercent(401)":   {hedge.WithBudgetPercent(401)},
		"WithBudgetPercent(NaN)":   {hedge.WithBudgetPercent(math.NaN())},
		"WithControl(-1)":          {hedge.WithControl(-1)},
		"WithControl(100.1)":       {hedge.WithControl(100.1)},
		"WithControl(NaN)":         {hedge.WithControl(math.NaN())},
		"WithLogger(nil)":          {hedge.WithLogger(nil)},
		"WithTrace(nil)":           {hedge.WithTrace(nil)},
		"WithTargetName(nil)":      {hedge.WithTargetName(nil)},
		"WithHedgeLimit(0, 1s)":    {hedge.WithHedgeLimit(0, time.Second)},
		"WithHedgeLimit(1, 0s)":    {hedge.WithHedgeLimit(1, 0)},
		"WithMinDelay(-1ns)":       {hedge.WithMinDelay(-1)},
		"WithWarmup(-1, 0s)":       {hedge.WithWarmup(-1, 0)},
		"WithWarmup(1, -5ms)":      {hedge.WithWarmup(1, -5*ms)},
		"WithWindow(9ms)":          {hedge.WithWindow(9 * ms)},
		"WithMaxMethods(0)":        {hedge.WithMaxMethods(0)},
		"WithMethods(): must have": {hedge.WithMethods()},
		"WithNonFatalCodes(OK)":    {hedge.WithNonFatalCodes(codes.OK)},
		"WithNonFatalCodes(Code(17)": {
			hedge.WithNonFatalCodes(codes.Unavailable, codes.Code(17))},
		"WithFailover(OK)": {hedge.WithFailover(codes.OK)},
		"WithFailover(Code(17)": {
			hedge.WithFailover(codes.Unavailable, codes.Code(17))},
		`WithReadOnlyMethods("pkg.Svc")`: {hedge.WithReadOnlyMethods("pkg.Svc")},
		`WithWaitForMessage("Get*")`:     {hedge.WithWaitForMessage("/a/B", "Get*")},
		"WithServiceConfig: ":            {hedge.WithServiceConfig("")},
		"WithServiceConfig: methodConfig[0] [a/B]: hedgingPolicy.maxAttempts: 1": {hedge.WithServiceConfig(policy)},
		`WithMethodOptions("/s/M"): WithMaxHedges(7)`: {
			hedge.WithMethodOptions("/s/M", hedge.WithMaxHedges(7))},
		`WithTargetOptions(""): must not be empty`:       {hedge.WithTargetOptions("", off)},
		`WithTargetOptions("\xff"): must be valid UTF-8`: {hedge.WithTargetOptions("\xff", off)},
		`WithTargetOptions("a"): WithMethodOptions cannot be set for a target`: {
			hedge.WithTargetOptions("a", hedge.WithMethodOptions("/s/M"))},
		`WithMethodOptions("/s/M"): WithWindow cannot be set for a method`: {
			hedge.WithMethodOptions("/s/M", hedge.WithWindow(time.Minute))},
	} {
		for _, opt := range opts {
			s, err := hedge.New(hedge.WithAllMethods(), opt)
			switch {
			case want == "" && err == nil:
				hedgetest.Call(t, s, target, method, time.Microsecond)
			case want == "" || s != nil || err == nil || !strings.HasPrefix(err.Error(), "hedge: "+want):
				t.Errorf("the error is %q, want %q", err, want)
			}
		}
	}
}

// TestClass_AtMostSixteen names a hundred classes, and has a call without a name before most of
// them: there are sixteen and the one of all others, which does not count. Then class 0 alone is
// called, also after an update with another function that names it: its delay is its own, and the
// other classes keep their places.
func TestClass_AtMostSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		options := func() []hedge.Option { // a function of its own each time
			return with{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Percentile(0.5)),
				hedge.WithClass(func(ctx context.Context, _ string, _ any) string {
					if class := ctx.Value(key{}).(int); class >= 0 {
						return fmt.Sprintf("%03d%s", class, strings.Repeat("x", 1000))
					}
					return ""
				})}
		}
		s := hedgetest.New(t, options()...)
		delay := func(class int, took time.Duration) time.Duration {
			c := begin(context.WithValue(t.Context(), key{}, class), s)
			c.Inspect(nil)
			plan := c.Plan()
			time.Sleep(took)
			c.End(hcall.Completion{})
			return plan.Delay
		}
		names := func() (names []string) {
			for _, c := range s.Methods()[0].Classes {
				names = append(names, c.Class[:min(len(c.Class), 7)])
				if len(c.Class) > 64 {
					t.Errorf("the name has %d bytes", len(c.Class))
				}
			}
			return names
		}
		for class := range 3000 { // of the method, most calls take 101 ms
			if class == 1 {
				delay(-1, 101*ms)
			}
			delay(class%100, []time.Duration{ms, 101 * ms}[min(class%100, 1)])
		}
		if got := names(); len(got) != 17 || got[0] != "(other)" || got[1] != "000xxxx" || got[16] != "015xxxx" {
			t.Errorf("%d classes: %q", len(got), got)
		}
		hedgetest.Update(t, s, options()...)
		for minutes := range 20 {
			time.Sleep(time.Minute)
			known, of, new := delay(0, ms), delay(-1, 101*ms), delay(100, ms)
			if !within(known, ms, 0.03) || minutes == 0 && (!within(of, 101*ms, 0.03) || !within(new, 101*ms, 0.03)) {
				t.Errorf("after %d minutes the delay of class 0 is %v, of none %v, and of a new class %v", minutes, known, of, new)
			}
		}
		if got := names(); len(got) != 17 || got[1] != "000xxxx" || got[16] != "015xxxx" {
			t.Errorf("after 20 minutes the classes are %s", got)
		}
	})
}

func TestBySize(t *testing.T) {
	for size, want := range map[int]string{0: "<1B", 1: "<4B", 10: "<16B", 14: "<64B", 61: "<64B", 62: "<256B",
		1000: "<1024B", 1022: "<4096B"} {
		m := wrapperspb.Bytes(make([]byte, size)) // with two bytes more
		if got := hedge.BySize(t.Context(), method, m); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
	if got := hedge.BySize(t.Context(), method, "text"); got != "" {
		t.Errorf("a string has the class %q", got)
	}
}

// callsOf makes n calls of a method, one every 10 ms with the given latency, and returns the number
// of their hedges.
func callsOf(t *testing.T, s *hedge.Scheduler, method string, n int, d time.Duration) int64 {
	t.Helper()
	before := s.Stats().Hedges
	for range n {
		hedgetest.Call(t, s, target, method, d)
		time.Sleep(10 * ms)
	}
	return s.Stats().Hedges - before
}

// The trigger plans with the smaller of the method's own budget and its target's.
func TestWithBudgetPercent_IsPlannedWith(t *testing.T) {
	longtest.Simulation(t)
	for _, own := range []float64{2, 50} {
		straggling := func(id uint64, attempt int, _ time.Duration) time.Duration {
			if draw := rand.New(rand.NewPCG(id, uint64(attempt))); draw.IntN(10) == 0 {
				return 100 * ms
			}
			return 5 * ms
		}
		_, rows := simulation.Client{Latency: straggling, Calls: 3000, Rate: 100, Options: with{
			hedge.WithBudgetPercent(5), hedge.WithMethodOptions("/*/*", hedge.WithBudgetPercent(own)),
		}}.Run(t)
		if c, most := rows[0].Choice, min(own, 5)/100; c.PredictedLoad == 0 || c.PredictedLoad > most {
			t.Errorf("an own budget of %v%%: a load of %v is planned, want at most %v", own, c.PredictedLoad, most)
		}
	}
}

// A method has less than its target gives, and not more. A changed budget, of the target or of a
// method, applies from the next call on, and savings stay.
func TestUpdate_ChangesTheBudget(t *testing.T) {
	type step struct {
		target, own float64
		from, to    int64 // hedges of 200 calls
	}
	for _, steps := range [][]step{
		{{10, 400, 18, 24}, {50, 400, 96, 102}, {0, 400, 0, 0}, {10, 400, 18, 22}},
		{{100, 10, 18, 24}, {100, 50, 96, 102}, {100, 0, 0, 0}, {100, 10, 18, 22}},
		{{5, 50, 9, 12}},
		{{20, 2, 3, 6}},
	} {
		synctest.Test(t, func(t *testing.T) {
			options := func(s step) []hedge.Option {
				return with{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(1),
					hedge.WithBudgetPercent(s.target), hedge.WithMethodOptions("/s/M", hedge.WithBudgetPercent(s.own))}
			}
			s := hedgetest.New(t, options(steps[0])...)
			for _, step := range steps {
				hedgetest.Update(t, s, options(step)...)
				if got := callsOf(t, s, "/s/M", 200, 100*ms); got < step.from || got > step.to {
					t.Errorf("%+v: %d hedges of 200 calls", step, got)
				}
			}
		})
	}
}

// A method's own budget outlives updates under which it has none: it does not begin again with a
// hedge to spend.
func TestUpdate_KeepsAMethodsOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := with{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)),
			hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100)}
		s := hedgetest.New(t, opts...)
		hedges := int64(0)
		for range 20 {
			hedgetest.Update(t, s, append(opts, hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(1)))...)
			hedges += callsOf(t, s, "/s/Own", 1, 100*ms)
			hedgetest.Update(t, s, opts...)
			callsOf(t, s, "/s/Own", 1, ms)
		}
		if hedges != 1 {
			t.Errorf("%d hedges of 20 calls, want 1", hedges)
		}
	})
}

// In TestDryRun_TakesNothingFromRealHedges a dry run of one method leaves the target's budget to
// the others, savings included.
func TestDryRun_TakesNothingFromRealHedges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(2*ms)), hedge.WithMethodOptions("/s/Dry", hedge.WithDryRun(true)))
		callsOf(t, s, "/s/Fast", 1000, 2*ms-1)
		before := s.Methods()[0]
		callsOf(t, s, "/s/Dry", 100, 2*ms+1)
		rows := s.Methods()
		if dry := rows[0]; dry.DryRun < 10 || dry.DryRun > 13 || dry.BudgetExhausted+dry.DryRun != 100 {
			t.Errorf("%d hedges would have been sent, and %d would not have been paid for", dry.DryRun, dry.BudgetExhausted)
		}
		if now := rows[1]; now.Tokens+now.Saved < 0.99*(before.Tokens+before.Saved) {
			t.Errorf("%v tokens and %v saved, before %v and %v", now.Tokens, now.Saved, before.Tokens, before.Saved)
		}
	})
}
