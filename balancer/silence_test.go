package balancer_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// calmDistribution is a distribution of calls to backends that do not stall.
type calmDistribution struct {
	name    string
	rate    float64 // calls a second
	workers int
	script  func(began time.Time) testserver.Script
}

var calmDistributions = []calmDistribution{
	{"straggler", 500, 0, distributionOf("straggler")},
	{"straggler, few calls", 50, 0, distributionOf("straggler")},
	{"sizes", 500, 0, func(time.Time) testserver.Script {
		// median 5 ms, sigma 1
		ofRequest, rest := testserver.LogNormal(8244*time.Microsecond,
			10_806*time.Microsecond), testserver.Exponential(ms)
		return func(a testserver.Attempt) testserver.Plan {
			rng := rand.New(rand.NewPCG(a.ID, 77))
			delay := ofRequest.Draw(rng) + a.Draw(rest)
			if a.Draw(testserver.Uniform(0, 100*ms)) < 2*ms {
				delay += 200 * ms
			}
			return testserver.Plan{Delay: delay, HeaderAtOnce: true}
		}
	}},
	{"ttft", 500, 0, distributionOf("ttft")},
	{"saturated", 3 * 0.70 * 4 / 0.008, 4, distributionOf("exponential:8ms")},
	{"saturated more", 3 * 0.95 * 4 / 0.008, 4, distributionOf("exponential:8ms")},
	{"outage", 500, 0, func(began time.Time) testserver.Script {
		distribution, _ := testserver.ParseDistribution("straggler")
		return func(a testserver.Attempt) testserver.Plan {
			delay := a.Draw(distribution)
			if at := a.Arrival.Sub(began); at > 10*time.Second && at < 20*time.Second {
				delay += time.Second
			}
			return testserver.Plan{Delay: delay, HeaderAtOnce: true}
		}
	}},
}

func distributionOf(name string) func(time.Time) testserver.Script {
	return func(time.Time) testserver.Script {
		distribution, err := testserver.ParseDistribution(name)
		if err != nil {
			panic(err)
		}
		return func(a testserver.Attempt) testserver.Plan {
			return testserver.Plan{Delay: a.Draw(distribution), HeaderAtOnce: true}
		}
	}
}

// standstill stalls the first backend for the first second of every five, beginning at phase.
func standstill(distribution testserver.Distribution, phase time.Duration) func(time.Time) testserver.Script {
	return func(began time.Time) testserver.Script {
		return func(a testserver.Attempt) testserver.Plan {
			delay := a.Draw(distribution)
			if at := (a.Arrival.Sub(began) + phase) % stallEvery; a.Backend == stalled && at < stallFor {
				delay += stallFor - at
			}
			return testserver.Plan{Delay: delay}
		}
	}
}

// TestSilence_FalseAlarms checks that few primaries are moved, and that the tail is unchanged, if
// no backend stalls.
func TestSilence_FalseAlarms(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for _, l := range calmDistributions {
		t.Run(l.name, func(t *testing.T) {
			calls := longtest.Table(5_000, 5_000, 20_000)
			// The tail of a queue depends on the order of a few calls, so several seeds are
			// averaged, and near saturation the tail is not checked.
			seeds := uint64(1)
			if l.workers > 0 {
				seeds, calls = 8, max(calls, 10_000)
			}
			var p99, without time.Duration
			for seed := range seeds {
				run := func(option grpc.DialOption) (time.Duration, stats.Method) {
					r := simulate(t, testserver.Config{Seed: 1, Workers: l.workers, CountsOnly: true}, option, l.script,
						traffic{kind: kinds[0], rate: l.rate, calls: calls, rng: generator(1, 2+seed)})
					return r.all.Tail(0.99), r.row
				}
				before, _ := run(with(roundRobin, `"silence": false`))
				after, row := run(over(roundRobin))
				moved := float64(row.Moved) / float64(calls)
				t.Logf("p99 %v, %v without; %.2f%% moved, %.1f%% extra load", after, before, 100*moved, 100*row.HedgeRate())
				if moved > 0.01 {
					t.Errorf("%.2f%% of the primaries were moved", 100*moved)
				}
				p99, without = p99+after, without+before
			}
			if float64(p99) > 1.01*float64(without) && l.name != "saturated more" {
				t.Errorf("p99 %v, %v without, of %d seeds", p99/time.Duration(seeds), without/time.Duration(seeds), seeds)
			}
		})
	}
}

// In TestSilence_SwitchedOff hedging is switched off while a backend is silent. From then on all
// calls are placed as without the policy.
func TestSilence_SwitchedOff(t *testing.T) {
	update := func(s *hedge.Scheduler, opts ...hedge.Option) {
		if err := s.Update(append(opts, hedge.WithAllMethods())...); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range []struct {
		name   string
		off    func(s *hedge.Scheduler)
		option []grpc.CallOption
		hedged bool // only calls of kinds that may be hedged are switched off
	}{
		{name: "Pause", off: func(s *hedge.Scheduler) { s.Pause() }},
		{name: "WithOff", off: func(s *hedge.Scheduler) {
			update(s, hedge.WithMethodOptions("/hedgetest.TestService/*", hedge.WithOff(true)))
		}},
		{name: "Off", off: func(*hedge.Scheduler) {}, option: []grpc.CallOption{hedge.Off()}},
		{name: "WithMaxHedges(0)", off: func(s *hedge.Scheduler) { update(s, hedge.WithMaxHedges(0)) },
			hedged: true},
		{name: "WithDryRun", off: func(s *hedge.Scheduler) { update(s, hedge.WithDryRun(true)) }, hedged: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				s, began := hedgetest.All(t), time.Now()
				var there, primaries atomic.Int64
				script := func(a testserver.Attempt) testserver.Plan {
					if a.Number == 0 {
						if primaries.Add(1); a.Backend == stalled {
							there.Add(1)
						}
					}
					if a.Backend == stalled && time.Since(began) >= 3*time.Second {
						return testserver.Plan{Ending: testserver.Hang}
					}
					return testserver.Plan{Delay: 2 * ms}
				}
				_, client := play(t, testserver.Config{Backends: 3, CountsOnly: true, Script: script}, s, over(roundRobin))
				// share makes calls for 3 s, and returns the share of them on the backend that is
				// silent from 3 s on.
				share := func(opts ...grpc.CallOption) float64 {
					there.Store(0)
					primaries.Store(0)
					call := func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
						_ ...grpc.CallOption) (*testpb.Reply, error) {
						reply, err := k.call(ctx, c, req, opts...)
						if err == nil && !tc.hedged {
							if up, err := c.ClientStream(ctx, opts...); err == nil {
								_, _ = up.CloseAndRecv()
							}
						}
						return reply, err
					}
					traffic{kind: kind{k.name, call}, rate: 100, lasts: 3 * time.Second, deadline: 200 * ms, rng: generator(1, 2),
						may: []codes.Code{codes.DeadlineExceeded}}.run(t, client)
					return float64(there.Load()) / float64(primaries.Load())
				}
				share()
				if share, moved := share(), s.Methods()[0].Moved; share > 0.2 || moved < 50 {
					t.Errorf("the silent backend has %.2f of the primaries, and %d were moved", share, moved)
				}
				tc.off(s)
				before := s.Methods()[0].Moved
				if share, moved := share(tc.option...), s.Methods()[0].Moved-before; share < 0.3 || moved > 0 {
					t.Errorf("switched off: the silent backend has %.2f of the primaries, and %d were moved", share, moved)
				}
			})
		})
	}
}

// TestSilence_HeadersAreNoAnswer has a backend that sends headers at once and no message for 20 s.
// It is as silent as a backend that sends nothing.
func TestSilence_HeadersAreNoAnswer(t *testing.T) {
	longtest.Simulation(t)
	for _, headers := range []bool{false, true} {
		script := func(began time.Time) testserver.Script {
			frozen := standstill(testserver.Uniform(2*ms, 8*ms), 0)
			return func(a testserver.Attempt) testserver.Plan {
				p := frozen(began)(a)
				if at := a.Arrival.Sub(began); a.Backend == stalled && at > 5*time.Second && at < 25*time.Second {
					p.Delay = 25*time.Second - at
				}
				p.HeaderAtOnce = headers
				return p
			}
		}
		r := simulate(t, testserver.Config{Seed: 1, CountsOnly: true}, over(roundRobin), script,
			traffic{kind: kinds[1], rate: 200, lasts: 25 * time.Second, rng: generator(1, 2)})
		p99, moved := r.all.Tail(0.99), r.row.Moved
		t.Logf("headers at once %v: p99 %v, %d of %d moved", headers, p99, moved, len(r.all))
		if p99 > 50*ms || moved < 1000 {
			t.Errorf("headers at once %v: p99 %v, %d moved", headers, p99, moved)
		}
	}
}
