package balancer_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	_ "google.golang.org/grpc/balancer/leastrequest"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

func init() {
	grpcbalancer.Register(base.NewBalancerBuilder("test_ewma", ewmaBuilder{}, base.Config{}))
}

// ewmaBuilder builds pickers that take the better of two connections, by a mean of latencies that
// decays in 10 s and by the calls in flight, as p2c_ewma of go-zero does.
type ewmaBuilder struct{}

func (ewmaBuilder) Build(info base.PickerBuildInfo) grpcbalancer.Picker {
	p := &ewmaPicker{}
	for sc := range info.ReadySCs {
		p.conns = append(p.conns, &ewmaConn{sc: sc})
	}
	if len(p.conns) == 0 {
		return base.NewErrPicker(grpcbalancer.ErrNoSubConnAvailable)
	}
	return p
}

type ewmaConn struct {
	sc       grpcbalancer.SubConn
	lag      float64
	inFlight int
	last     time.Time // Done
	picked   time.Time
}

type ewmaPicker struct {
	mu    sync.Mutex
	conns []*ewmaConn
}

func (p *ewmaPicker) Pick(grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	load := func(c *ewmaConn) float64 { return math.Sqrt(c.lag+1) * float64(c.inFlight+1) }
	a := rand.IntN(len(p.conns))
	b := (a + 1 + rand.IntN(len(p.conns)-1)) % len(p.conns)
	c, other := p.conns[a], p.conns[b]
	if load(c) > load(other) {
		c, other = other, c
	}
	if began.Sub(other.picked) > time.Second {
		c = other
	}
	c.picked = began
	c.inFlight++
	return grpcbalancer.PickResult{SubConn: c.sc, Done: func(grpcbalancer.DoneInfo) {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := time.Now()
		old := math.Exp(-now.Sub(c.last).Seconds() / 10)
		if c.last.IsZero() {
			old = 0
		}
		c.lag = c.lag*old + float64(now.Sub(began))*(1-old)
		c.last, c.inFlight = now, c.inFlight-1
	}}, nil
}

// TestUnusedPicks has children that measure latencies or calls in flight. One of three backends stalls
// for 1 s in every 5. Below the policy the child sends it no more primaries than by itself: a pick that
// the policy does not use is no fast answer.
func TestUnusedPicks(t *testing.T) {
	longtest.Simulation(t)
	for _, child := range []string{`{"test_ewma": {}}`, leastRequest} {
		there := map[string]int64{}
		for _, tc := range []struct{ name, policy string }{
			{"by itself", child}, {"below", wrapped(child)},
		} {
			for seed := range uint64(longtest.Size(2, 5)) {
				var primaries atomic.Int64
				simulate(t, tc.name, testserver.Config{Seed: seed, CountsOnly: true}, tc.policy,
					func(began time.Time) testserver.Script {
						script := stalling(testserver.LogNormal(3*ms, ms), time.Second)(began)
						return func(a testserver.Attempt) testserver.Plan {
							if a.Backend == stalled && a.Number == 0 {
								primaries.Add(1)
							}
							return script(a)
						}
					}, simulation.Client{Rate: 100, Calls: 3_000, Seed: seed})
				there[tc.name] += primaries.Load()
			}
		}
		t.Logf("%s: primaries of the stalled backend: %v", child, there)
		if there["below"] > there["by itself"] {
			t.Errorf("%s: the stalled backend has more primaries below the policy: %v", child, there)
		}
	}
}
