package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func newComparison(calls int) *comparison {
	return &comparison{
		workload:    workloadNamed("straggler"),
		law:         testserver.Straggler(testserver.Constant(time.Millisecond), 0.05, 30),
		policies:    []policy{policyNamed(none), policyNamed(adaptive)},
		options:     []hedge.Option{hedge.WithWarmup(0, 5*time.Millisecond)},
		calls:       calls,
		concurrency: 8,
		backends:    3,
		seed:        5,
	}
}

// TestComparison checks what a comparison counts against the server's log of every attempt.
func TestComparison(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		c := newComparison(400)
		c.keepRecords, c.atOnce = true, atOnce
		results, stalled, err := c.run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if stalled.watched <= 0 {
			t.Error("nobody watched for stalls")
		}
		for _, r := range results {
			if err := r.err(); err != nil {
				t.Error(err)
			}
			attempts, hedges, cancelled := 0, 0, 0
			for n := range c.calls {
				if r.latencies[n] <= 0 {
					t.Fatalf("%s: call %d took %v", r.policy.name, n, r.latencies[n])
				}
				records := r.records[callID(n)]
				if len(records) == 0 {
					t.Fatalf("%s: call %d did not reach the server", r.policy.name, n)
				}
				for _, record := range records {
					attempts++
					if record.Number > 0 {
						hedges++
					}
					if record.WasCancelled() {
						cancelled++
					}
				}
			}
			if want := float64(attempts-c.calls) / float64(c.calls); math.Abs(r.extraLoad()-want) > 1e-9 {
				t.Errorf("%s: extra load %v, the log says %v", r.policy.name, r.extraLoad(), want)
			}
			if r.server.Hedges != int64(hedges) || r.server.Cancelled != int64(cancelled) {
				t.Errorf("%s: %d hedges and %d cancelled, the log says %d and %d", r.policy.name, r.server.Hedges, r.server.Cancelled, hedges, cancelled)
			}
		}
		if plain, hedged := results[0], results[1]; plain.server.Hedges != 0 || hedged.server.Hedges == 0 || hedged.stats.Calls != int64(c.calls) {
			t.Errorf("hedges %d without and %d with hedging, which counts %d calls of %d", plain.server.Hedges, hedged.server.Hedges, hedged.stats.Calls, c.calls)
		}
	}
}

// TestComparisonReportsBadCalls checks that calls that fail or get a wrong reply are counted apart, and named.
func TestComparisonReportsBadCalls(t *testing.T) {
	c := newComparison(100)
	c.workload.call = func(_ context.Context, _ testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
		switch {
		case id == callID(3):
			return time.Millisecond, 0, errors.New("broken")
		case id > callID(97):
			return time.Millisecond, 0, wrongReply{errors.New("odd")}
		}
		return time.Millisecond, 0, nil
	}
	results, _, err := c.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.failed != 1 || r.wrong != 2 {
			t.Errorf("%s: %d failed and %d wrong, want 1 and 2", r.policy.name, r.failed, r.wrong)
		}
		if err := r.err(); err == nil || !strings.Contains(err.Error(), r.policy.name+": 1 failed calls, 2 wrong replies; the first: call 3 with seed 5: broken") {
			t.Errorf("%s: the error is %v", r.policy.name, err)
		}
	}
}

func TestComparisonIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newComparison(100_000)
	c.workload.call = func(_ context.Context, _ testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
		if id == callID(10) {
			cancel()
		}
		return time.Millisecond, 0, nil
	}
	if _, _, err := c.run(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that of the context", err)
	}
}
