package balancer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// slowBackend is a cluster of three backends of which the first answers later than the others, from some time on. After a
// minute it stands still once.
type slowBackend struct {
	name     string
	kind     kind
	later    time.Duration
	from     time.Duration
	stall    time.Duration
	deadline time.Duration // of each call; 0: none
	options  []hedge.Option
}

func (b slowBackend) script(began time.Time, primary func(at time.Duration, slow bool)) testserver.Script {
	distribution, end := testserver.LogNormal(5*ms, 2*ms), time.Minute+b.stall
	return func(a testserver.Attempt) testserver.Plan {
		at, delay := a.Arrival.Sub(began), a.Draw(distribution)
		if a.Number == 0 {
			primary(at, a.Backend == stalled)
		}
		if a.Backend == stalled {
			if at >= b.from {
				delay += b.later
			}
			if at >= time.Minute && at < end {
				delay += end - at
			}
		}
		return testserver.Plan{Delay: delay}
	}
}

// run makes 200 calls a second at random times, until some half minutes after the stall. It returns the share of the primaries
// that the slow backend had in each of these half minutes, 1 being a third of them.
func (b slowBackend) run(t *testing.T, seed uint64, halfMinutes int) []float64 {
	const rate, slice = 200, 30 * time.Second
	shares := make([]float64, halfMinutes)
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, b.options...)
		cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: seed, DrawByID: true, CountsOnly: true})
		client := testpb.NewTestServiceClient(dial(t, cluster, s, over(roundRobin)))
		synctest.Wait()
		began, end := time.Now(), time.Minute+b.stall
		all, slow := make([]atomic.Int64, halfMinutes+1), make([]atomic.Int64, halfMinutes+1)
		cluster.SetScript(b.script(began, func(at time.Duration, here bool) {
			if at < end {
				return
			}
			all[(at-end)/slice].Add(1)
			if here {
				slow[(at-end)/slice].Add(1)
			}
		}))
		traffic{kind: b.kind, rate: rate, lasts: end + time.Duration(halfMinutes)*slice, deadline: b.deadline, rng: generator(seed, 2)}.mustSucceed(t, client)
		for i := range shares {
			shares[i] = 3 * float64(slow[i].Load()) / float64(all[i].Load())
		}
		row := s.Methods()[0]
		t.Logf("%.1f%% extra load, %d of %d moved, delay %v; shares %.2f", 100*row.HedgeRate(), row.Moved, row.Calls, row.Delay, shares)
	})
	return shares
}

// In TestSilence_AfterAStall a backend that is healthy, but slower than the others, stands still once. Meanwhile the others
// teach a delay that is too short for it. Two minutes later it has half of its share again, and after five minutes all of it.
func TestSilence_AfterAStall(t *testing.T) {
	longtest.Simulation(t)
	unary, stream := kinds[0], kinds[1]
	const stall = 40 * time.Second
	generous := []hedge.Option{hedge.WithBudgetPercent(50)} // the delay excludes the slow backend at any time
	for _, b := range []slowBackend{
		{name: "15 ms", kind: unary, later: 15 * ms, stall: stall},
		{name: "15 ms, streams", kind: stream, later: 15 * ms, stall: stall},
		{name: "long stall", kind: unary, later: 15 * ms, stall: 5 * time.Minute},
		{name: "slower without a stall, large budget", kind: unary, later: 200 * ms, from: time.Minute, options: generous},
		{name: "200 ms", kind: unary, later: 200 * ms, stall: stall},
		{name: "not slower", kind: unary, stall: stall},
		{name: "short stall", kind: unary, later: 15 * ms, stall: 5 * time.Second},
		{name: "large budget", kind: unary, later: 15 * ms, stall: stall, options: generous},
		{name: "slower without a stall", kind: unary, later: 200 * ms, from: time.Minute},
	}[:longtest.Table(1, 2, 9)] {
		t.Run(b.name, func(t *testing.T) {
			for seed := range uint64(longtest.Table(1, 1, 20)) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					for i, share := range b.run(t, seed, longtest.Size(5, 11)) {
						if i >= 4 && share < 0.5 || i >= 10 && share < 0.95 {
							t.Errorf("after %v it has %.2f of its share", time.Duration(i)*30*time.Second, share)
						}
					}
				})
			}
		})
	}
}

// TestSilence_ProbesMeetDeadlines makes calls with a deadline of 200 ms while a backend stands still. Some of them probe it, and
// none fails for that.
func TestSilence_ProbesMeetDeadlines(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	b := slowBackend{kind: kinds[0], stall: 2 * time.Minute, deadline: 200 * ms}
	b.run(t, 1, 1)
}
