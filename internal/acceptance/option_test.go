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

func TestNew_RejectsWhatIsOutOfRange(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  hedge.Option
		want []string // in the error
	}{
		{"percentile 0", hedge.WithTrigger(hedge.Percentile(0)), []string{"WithTrigger(Percentile(0))", "between 0 and 1"}},
		{"percentile 1", hedge.WithTrigger(hedge.Percentile(1)), []string{"WithTrigger(Percentile(1))", "between 0 and 1"}},
		{"percentile 90", hedge.WithTrigger(hedge.Percentile(90)),
			[]string{"WithTrigger(Percentile(90))", "between 0 and 1"}},
		{"percentile -0.5", hedge.WithTrigger(hedge.Percentile(-0.5)),
			[]string{"WithTrigger(Percentile(-0.5))", "between 0 and 1"}},
		{"percentile NaN", hedge.WithTrigger(hedge.Percentile(math.NaN())),
			[]string{"WithTrigger(Percentile(NaN))", "between 0 and 1"}},
		{"trigger percentile 1.5", hedge.WithTrigger(hedge.Percentile(1.5)),
			[]string{"WithTrigger(Percentile(1.5))", "between 0 and 1"}},
		{"trigger fixed -1s", hedge.WithTrigger(hedge.Fixed(-time.Second)), []string{"WithTrigger(Fixed(-1s))", "negative"}},
		{"no trigger", hedge.WithTrigger(hedge.Trigger{}), []string{"WithTrigger(Percentile(0))"}},
		{"target percentile 0.4", hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(0.4))),
			[]string{"WithTrigger(Auto(TargetPercentile(0.4)))", "0.5 to 0.999"}},
		{"target percentile 99", hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(99))),
			[]string{"WithTrigger(Auto(TargetPercentile(99)))", "0.5 to 0.999"}},
		{"target percentile NaN", hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(math.NaN()))),
			[]string{"WithTrigger(Auto(TargetPercentile(NaN)))", "0.5 to 0.999"}},
		{"-1 hedges", hedge.WithMaxHedges(-1), []string{"WithMaxHedges", "-1"}},
		{"5 hedges", hedge.WithMaxHedges(5), []string{"WithMaxHedges", "5"}},
		{"budget -1", hedge.WithBudgetPercent(-1), []string{"WithBudgetPercent", "-1"}},
		{"budget 401", hedge.WithBudgetPercent(401), []string{"WithBudgetPercent", "401"}},
		{"budget infinite", hedge.WithBudgetPercent(math.Inf(1)), []string{"WithBudgetPercent", "+Inf"}},
		{"budget NaN", hedge.WithBudgetPercent(math.NaN()), []string{"WithBudgetPercent", "NaN"}},
		{"control -1", hedge.WithControl(-1), []string{"WithControl(-1)"}},
		{"control 100.1", hedge.WithControl(100.1), []string{"WithControl(100.1)"}},
		{"control NaN", hedge.WithControl(math.NaN()), []string{"WithControl(NaN)"}},
		{"no logger", hedge.WithLogger(nil), []string{"WithLogger(nil)"}},
		{"no trace", hedge.WithTrace(nil), []string{"WithTrace(nil)"}},
		{"reset limit -1", hedge.WithResetLimit(-1, time.Second), []string{"WithResetLimit", "-1"}},
		{"reset limit per 0", hedge.WithResetLimit(1, 0), []string{"WithResetLimit", "0s"}},
		{"reset limit per -1s", hedge.WithResetLimit(1, -time.Second), []string{"WithResetLimit", "-1s"}},
		{"no resets", hedge.WithResetLimit(0, time.Second), []string{"WithResetLimit(0, 1s)", "at least 1"}},
		{"min delay -1ns", hedge.WithMinDelay(-1), []string{"WithMinDelay", "-1ns"}},
		{"warmup -1 calls", hedge.WithWarmup(-1, 0), []string{"WithWarmup", "-1"}},
		{"warmup -5ms", hedge.WithWarmup(1, -5*time.Millisecond), []string{"WithWarmup", "-5ms"}},
		{"window 0", hedge.WithWindow(0), []string{"WithWindow", "0s"}},
		{"window -1s", hedge.WithWindow(-time.Second), []string{"WithWindow", "-1s"}},
		{"window 9ms", hedge.WithWindow(9 * time.Millisecond), []string{"WithWindow", "9ms"}},
		{"methods 0", hedge.WithMaxMethods(0), []string{"WithMaxMethods(0)", "at least 1"}},
		{"methods -1", hedge.WithMaxMethods(-1), []string{"WithMaxMethods(-1)", "at least 1"}},
		{"no function for names", hedge.WithTargetName(nil), []string{"WithTargetName(nil)"}},
		{"no pattern", hedge.WithMethods(), []string{"WithMethods", "at least one"}},
		{"no read-only pattern", hedge.WithReadOnlyMethods(), []string{"WithReadOnlyMethods", "at least one"}},
		{"read-only pattern without a slash", hedge.WithReadOnlyMethods("pkg.Svc"),
			[]string{"WithReadOnlyMethods", `"pkg.Svc"`}},
		{"no stream", hedge.WithWaitForMessage(), []string{"WithWaitForMessage", "at least one"}},
		{"stream without a slash", hedge.WithWaitForMessage("/a/B", "Get*"), []string{"WithWaitForMessage", `"Get*"`}},
		{"empty pattern", hedge.WithMethods(""), []string{"WithMethods", `""`}},
		{"no slash", hedge.WithMethods("pkg.Svc"), []string{"WithMethods", `"pkg.Svc"`}},
		{"no method", hedge.WithMethods("/pkg.Svc/"), []string{"WithMethods", `"/pkg.Svc/"`}},
		{"no service", hedge.WithMethods("//Get"), []string{"WithMethods", `"//Get"`}},
		{"one part", hedge.WithMethods("/pkg.Svc"), []string{"WithMethods", `"/pkg.Svc"`}},
		{"three parts", hedge.WithMethods("/a/b/c"), []string{"WithMethods", `"/a/b/c"`}},
		{"bad bracket", hedge.WithMethods("/a/b", "/pkg.Svc/[Get"),
			[]string{"WithMethods", `"/pkg.Svc/[Get"`, "syntax error"}},
		{"service config empty", hedge.WithServiceConfig(""), []string{"WithServiceConfig", "JSON"}},
		{"service config out of range",
			hedge.WithServiceConfig(
				`{"methodConfig": [{"name": [{"service": "a", "method": "B"}], "hedgingPolicy": ` +
					`{"maxAttempts": 1}}]}`), []string{"WithServiceConfig", "a/B", "maxAttempts", "1"}},
		{"code OK", hedge.WithNonFatalCodes(codes.OK), []string{"WithNonFatalCodes", "OK"}},
		{"code 17", hedge.WithNonFatalCodes(codes.Unavailable, codes.Code(17)), []string{"WithNonFatalCodes", "17"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := hedge.New(hedge.WithAllMethods(), tc.opt)
			if err == nil || s != nil {
				t.Fatalf("New returned %v, %v", s, err)
			}
			for _, part := range append(tc.want, "hedge: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

func TestNew_MustBeToldWhatMayRunTwice(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2}}]}`
	for _, tc := range []struct {
		name string
		opts []hedge.Option
		ok   bool
	}{
		{"nothing", nil, false},
		{"only how", []hedge.Option{hedge.WithMaxHedges(1), hedge.WithDryRun(true)}, false},
		{"methods", []hedge.Option{hedge.WithMethods("/a/B")}, true},
		{"methods that read", []hedge.Option{hedge.WithReadOnlyMethods("/a/B")}, true},
		{"idempotent ones", []hedge.Option{hedge.WithIdempotentOnly()}, true},
		{"those of a service config", []hedge.Option{hedge.WithServiceConfig(config)}, true},
		{"all", []hedge.Option{hedge.WithAllMethods()}, true},
	} {
		_, err := hedge.New(tc.opts...)
		switch {
		case (err == nil) != tc.ok:
			t.Errorf("%s: %v", tc.name, err)
		case err != nil && !strings.Contains(err.Error(), "WithReadOnlyMethods"):
			t.Errorf("%s: %q names no option that selects methods", tc.name, err)
		}
	}
}

func TestNew_TakesTheEndsOfEachRange(t *testing.T) {
	for _, opt := range []hedge.Option{
		nil,
		hedge.WithTrigger(hedge.Percentile(math.SmallestNonzeroFloat64)),
		hedge.WithTrigger(hedge.Percentile(math.Nextafter(1, 0))),
		hedge.WithTrigger(hedge.Auto()),
		hedge.WithTrigger(hedge.Fixed(0)),
		hedge.WithTrigger(hedge.Fixed(math.MaxInt64)),
		hedge.WithTrigger(hedge.Percentile(0.5)),
		hedge.WithTrigger(hedge.Auto(nil)),
		hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(0.5))),
		hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(0.999))),
		hedge.WithDryRun(true),
		hedge.WithMaxHedges(0),
		hedge.WithMaxHedges(4),
		hedge.WithBudgetPercent(0),
		hedge.WithBudgetPercent(400),
		hedge.WithMinDelay(0),
		hedge.WithResetLimit(1, time.Millisecond),
		hedge.WithResetLimit(math.MaxInt, time.Millisecond),
		hedge.WithMinDelay(math.MaxInt64),
		hedge.WithWarmup(0, 0),
		hedge.WithWarmup(math.MaxInt, math.MaxInt64),
		hedge.WithWindow(10 * time.Millisecond),
		hedge.WithWindow(math.MaxInt64),
		hedge.WithMaxMethods(1),
		hedge.WithMaxMethods(math.MaxInt),
		hedge.WithTargetName(func(string) string { return "" }),
		hedge.WithMethods("/pkg.Svc/Get", "/pkg.Svc/*", "/*/*", "/pkg.Svc/[GL]*"),
		hedge.WithIdempotentOnly(),
		hedge.WithNonFatalCodes(),
		hedge.WithNonFatalCodes(codes.Unauthenticated, codes.Canceled),
	} {
		s, err := hedge.New(hedge.WithAllMethods(), opt)
		if err != nil {
			t.Errorf("New: %v", err)
			continue
		}
		hedgetest.Call(t, s, target, "/pkg.Svc/Get", time.Microsecond) // and it works
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
