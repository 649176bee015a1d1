package hedge_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

// trickle is the law of the workload slow-trickle: the median is 5 ms, and one attempt in twenty takes eight times as long.
var trickle = testserver.Straggler(testserver.LogNormal(5533*time.Microsecond, 2621*time.Microsecond), 0.05, 8)

// quota is a server's rate limit: a token bucket, of which each attempt takes one. An attempt that finds none fails.
type quota struct {
	rate  func(at time.Duration) float64 // tokens a second
	burst float64
	code  codes.Code

	mu     sync.Mutex
	tokens float64
	last   time.Duration
}

func newQuota(rate, burst float64) *quota {
	return &quota{rate: func(time.Duration) float64 { return rate }, burst: burst, tokens: burst, code: codes.ResourceExhausted}
}

// take is the simulation's fails.
func (q *quota) take(_ uint64, _ int, at time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens = min(q.tokens+q.rate(at)*(at-q.last).Seconds(), q.burst)
	q.last = at
	if q.tokens < 1 {
		return status.Error(q.code, "the quota is used up")
	}
	q.tokens--
	return nil
}

// failed is the share of calls that failed, in percent.
func failed(calls []outcome) float64 {
	n := 0
	for _, c := range calls {
		if c.err != nil {
			n++
		}
	}
	return 100 * float64(n) / float64(len(calls))
}

var unhedged = []hedge.Option{hedge.WithMaxHedges(0)}

// TestGuard_Quota: hedges take the tokens of no call that needs them.
func TestGuard_Quota(t *testing.T) {
	for _, offered := range []float64{400, 440, 460, 480} {
		t.Run(fmt.Sprint(offered), func(t *testing.T) {
			for seed := range uint64(longtest.Size(1, 5)) {
				run := func(opts ...hedge.Option) ([]outcome, []hedge.TargetStats) {
					return simulation{law: drawing(trickle, seed), fails: newQuota(500, 50).take, calls: 40_000, rate: offered,
						seed: seed, options: opts}.run(t)
				}
				plain, _ := run(unhedged...)
				hedged, rows := run()
				throttled, _ := run(hedge.WithThrottle(10, 0.1))
				t.Logf("seed %d: failed %.2f%%, hedged %.2f%%, with a throttle %.2f%%; p99 %v, hedged %v; %d hedges",
					seed, failed(plain), failed(hedged), failed(throttled), tail(plain, 0.99), tail(hedged, 0.99), rows[0].Hedges)
			}
		})
	}
}

var _ = rand.Float64
