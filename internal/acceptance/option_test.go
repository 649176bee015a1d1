package acceptance_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestNew_OutOfRange names the option and the value in each error.
func TestNew_OutOfRange(t *testing.T) {
	trigger := hedge.WithTrigger
	config := `{"methodConfig": [{"name": [{"service": "a", "method": "B"}], "hedgingPolicy": {"maxAttempts": 1}}]}`
	for want, opt := range map[string]hedge.Option{
		"WithTrigger(Percentile(0)): quantile must be between 0 and 1":   trigger(hedge.Percentile(0)),
		"WithTrigger(Percentile(1)): quantile must be between 0 and 1":   trigger(hedge.Percentile(1)),
		"WithTrigger(Percentile(NaN)): quantile must be":                 trigger(hedge.Percentile(math.NaN())),
		"WithTrigger(Fixed(-1s)): delay must not be negative":            trigger(hedge.Fixed(-time.Second)),
		"WithTrigger(Auto(TargetPercentile(0.4))): quantile must be 0.5": targeted(0.4),
		"WithTrigger(Auto(TargetPercentile(99))): quantile must be 0.5":  targeted(99),
		"WithTrigger(Auto(TargetPercentile(NaN))): quantile must be 0.5": targeted(math.NaN()),
		"WithMaxHedges(-1)":               hedge.WithMaxHedges(-1),
		"WithMaxHedges(5)":                hedge.WithMaxHedges(5),
		"WithBudgetPercent(-1)":           hedge.WithBudgetPercent(-1),
		"WithBudgetPercent(401)":          hedge.WithBudgetPercent(401),
		"WithBudgetPercent(NaN)":          hedge.WithBudgetPercent(math.NaN()),
		"WithControl(-1)":                 hedge.WithControl(-1),
		"WithControl(100.1)":              hedge.WithControl(100.1),
		"WithControl(NaN)":                hedge.WithControl(math.NaN()),
		"WithLogger(nil)":                 hedge.WithLogger(nil),
		"WithTrace(nil)":                  hedge.WithTrace(nil),
		"WithTargetName(nil)":             hedge.WithTargetName(nil),
		"WithResetLimit(0, 1s)":           hedge.WithResetLimit(0, time.Second),
		"WithResetLimit(1, 0s)":           hedge.WithResetLimit(1, 0),
		"WithMinDelay(-1ns)":              hedge.WithMinDelay(-1),
		"WithWarmup(-1, 0s)":              hedge.WithWarmup(-1, 0),
		"WithWarmup(1, -5ms)":             hedge.WithWarmup(1, -5*ms),
		"WithWindow(9ms)":                 hedge.WithWindow(9 * ms),
		"WithMaxMethods(0)":               hedge.WithMaxMethods(0),
		"WithMethods(): must have":        hedge.WithMethods(),
		"WithNonFatalCodes(OK)":           hedge.WithNonFatalCodes(codes.OK),
		"WithNonFatalCodes(Code(17)":      hedge.WithNonFatalCodes(codes.Unavailable, codes.Code(17)),
		`WithReadOnlyMethods("pkg.Svc")`:  hedge.WithReadOnlyMethods("pkg.Svc"),
		`WithWaitForMessage("Get*")`:      hedge.WithWaitForMessage("/a/B", "Get*"),
		`WithMethods("")`:                 hedge.WithMethods(""),
		`WithMethods("/pkg.Svc/")`:        hedge.WithMethods("/pkg.Svc/"),
		`WithMethods("//Get")`:            hedge.WithMethods("//Get"),
		`WithMethods("/pkg.Svc")`:         hedge.WithMethods("/pkg.Svc"),
		`WithMethods("/a/b/c")`:           hedge.WithMethods("/a/b/c"),
		`WithMethods("/a/[b"): malformed`: hedge.WithMethods("/a/b", "/a/[b"),
		"WithServiceConfig: ":             hedge.WithServiceConfig(""),
		"WithServiceConfig: methodConfig[0] [a/B]: hedgingPolicy.maxAttempts: 1": hedge.WithServiceConfig(config),
	} {
		s, err := hedge.New(hedge.WithAllMethods(), opt)
		if s != nil || err == nil || !strings.HasPrefix(err.Error(), "hedge: "+want) {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
}

func targeted(q float64) hedge.Option {
	return hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(q)))
}

// TestNew_NeedsASelection is an error unless an option selects methods.
func TestNew_NeedsASelection(t *testing.T) {
	for i, opt := range []hedge.Option{
		nil, hedge.WithDryRun(true), // the first two select nothing
		hedge.WithMethods("/a/B"), hedge.WithReadOnlyMethods("/a/B"), hedge.WithIdempotentOnly(),
		hedge.WithServiceConfig("{}"), hedge.WithAllMethods(),
	} {
		_, err := hedge.New(opt)
		if (err == nil) != (i >= 2) || err != nil && !strings.Contains(err.Error(), "WithReadOnlyMethods") {
			t.Errorf("option %d: %v", i, err)
		}
	}
}

// TestNew_EndsOfRanges accepts the ends of each range, and hedges with them.
func TestNew_EndsOfRanges(t *testing.T) {
	for _, opt := range []hedge.Option{
		nil,
		hedge.WithTrigger(hedge.Percentile(math.SmallestNonzeroFloat64)),
		hedge.WithTrigger(hedge.Percentile(math.Nextafter(1, 0))),
		hedge.WithTrigger(hedge.Fixed(0)),
		hedge.WithTrigger(hedge.Fixed(math.MaxInt64)),
		hedge.WithTrigger(hedge.Auto(nil)),
		targeted(0.5),
		targeted(0.999),
		hedge.WithMaxHedges(0),
		hedge.WithMaxHedges(4),
		hedge.WithBudgetPercent(0),
		hedge.WithBudgetPercent(400),
		hedge.WithMinDelay(0),
		hedge.WithMinDelay(math.MaxInt64),
		hedge.WithResetLimit(1, ms),
		hedge.WithResetLimit(math.MaxInt, ms),
		hedge.WithWarmup(0, 0),
		hedge.WithWarmup(math.MaxInt, math.MaxInt64),
		hedge.WithWindow(10 * ms),
		hedge.WithWindow(math.MaxInt64),
		hedge.WithMaxMethods(1),
		hedge.WithMaxMethods(math.MaxInt),
		hedge.WithNonFatalCodes(),
	} {
		s, err := hedge.New(hedge.WithAllMethods(), opt)
		if err != nil {
			t.Errorf("New: %v", err)
			continue
		}
		hedgetest.Call(t, s, target, "/pkg.Svc/Get", time.Microsecond)
	}
}

func nothing(context.Context) (struct{}, error) { return struct{}{}, nil }

// BenchmarkDo is a call that needs no hedge, of a function that does nothing.
func BenchmarkDo(b *testing.B) {
	s := hedgetest.All(b, hedge.WithMinDelay(time.Second))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hedge.Do(b.Context(), s, "bench", "/pkg.Svc/Get", nothing); err != nil {
			b.Fatal(err)
		}
	}
}
