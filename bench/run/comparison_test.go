package run

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func newComparison(calls int) *Comparison {
	return &Comparison{
		Workload:     workload.Named("straggler"),
		Distribution: testserver.Straggler(testserver.Constant(time.Millisecond), 0.05, 30),
		Policies:     []policy.Policy{policy.Named(policy.None), policy.Named(policy.Adaptive)},
		Options:      []hedge.Option{hedge.WithWarmup(0, 5*time.Millisecond)},
		Calls:        calls,
		Concurrency:  8,
		Backends:     3,
		Seed:         5,
	}
}

// TestComparison compares a comparison's counts with the server's log of every attempt.
func TestComparison(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		c := newComparison(400)
		c.KeepRecords, c.AtOnce = true, atOnce
		results, stalled, err := c.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if stalled.watched <= 0 {
			t.Error("stalls were not watched for")
		}
		for _, r := range results {
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			attempts, hedges, cancelled := 0, 0, 0
			for n := range c.Calls {
				if r.Latencies[n] <= 0 {
					t.Fatalf("%s: call %d took %v", r.Policy.Name, n, r.Latencies[n])
				}
				records := r.Records[workload.CallID(n)]
				if len(records) == 0 {
					t.Fatalf("%s: call %d did not reach the server", r.Policy.Name, n)
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
			if want := float64(attempts-c.Calls) / float64(c.Calls); math.Abs(r.ExtraLoad()-want) > 1e-9 {
				t.Errorf("%s: extra load %v, the log says %v", r.Policy.Name, r.ExtraLoad(), want)
			}
			if r.Server.Hedges != int64(hedges) || r.Server.Cancelled != int64(cancelled) {
				t.Errorf("%s: %d hedges and %d cancelled, the log says %d and %d", r.Policy.Name,
					r.Server.Hedges, r.Server.Cancelled, hedges, cancelled)
			}
		}
		if plain, hedged := results[0], results[1]; plain.Server.Hedges != 0 || hedged.Server.Hedges == 0 ||
			hedged.Stats.Calls != int64(c.Calls) {
			t.Errorf("%d hedges without and %d with hedging, which counts %d calls of %d", plain.Server.Hedges,
				hedged.Server.Hedges, hedged.Stats.Calls, c.Calls)
		}
	}
}

// TestComparisonReportsBadCalls checks that failed calls and wrong replies are counted separately,
// and that the first is named.
func TestComparisonReportsBadCalls(t *testing.T) {
	c := newComparison(100)
	c.Workload.Call = func(_ context.Context, _ testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
		switch {
		case id == workload.CallID(3):
			return time.Millisecond, 0, errors.New("broken")
		case id > workload.CallID(97):
			return time.Millisecond, 0, workload.WrongReply{Err: errors.New("odd")}
		}
		return time.Millisecond, 0, nil
	}
	results, _, err := c.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Failed != 1 || r.Wrong != 2 {
			t.Errorf("%s: %d failed and %d wrong, want 1 and 2", r.Policy.Name, r.Failed, r.Wrong)
		}
		if err := r.Err(); err == nil || !strings.Contains(err.Error(),
			r.Policy.Name+": 1 failed calls, 2 wrong replies; the first: call 3 with seed 5: broken") {
			t.Errorf("%s: the error is %v", r.Policy.Name, err)
		}
	}
}
