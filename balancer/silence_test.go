package balancer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// stalled is the backend that stalls.
const stalled = 0

// In TestSilence_SwitchedOff hedging is switched off while a backend is silent. From then on all
// calls are placed as without the policy. The silent backend sends headers, which are no answer of a
// stream.
func TestSilence_SwitchedOff(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   kind
		off    func(t *testing.T, s *hedge.Scheduler)
		option []grpc.CallOption
		hedged bool // only calls of kinds that may be hedged are switched off
	}{
		{name: "Pause", kind: unary, off: func(_ *testing.T, s *hedge.Scheduler) { s.Pause() }},
		{name: "Pause, streams", kind: stream, off: func(_ *testing.T, s *hedge.Scheduler) { s.Pause() }},
		{name: "WithOff", kind: unary, off: func(t *testing.T, s *hedge.Scheduler) {
			hedgetest.Update(t, s, hedge.WithAllMethods(),
				hedge.WithMethodOptions("/hedgetest.TestService/*", hedge.WithOff(true)))
		}},
		{name: "Off", kind: stream, off: func(*testing.T, *hedge.Scheduler) {}, option: []grpc.CallOption{hedge.Off()}},
		{name: "WithMaxHedges(0)", kind: unary, off: func(t *testing.T, s *hedge.Scheduler) {
			hedgetest.Update(t, s, hedge.WithAllMethods(), hedge.WithMaxHedges(0))
		}, hedged: true},
		{name: "WithDryRun", kind: stream, off: func(t *testing.T, s *hedge.Scheduler) {
			hedgetest.Update(t, s, hedge.WithAllMethods(), hedge.WithDryRun(true))
		}, hedged: true},
		{name: `"silence": false`, kind: unary, hedged: true},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s, began := hedgetest.All(t), time.Now()
			var there, primaries atomic.Int64
			script := func(a testserver.Attempt) testserver.Plan {
				if a.Number == 0 {
					if primaries.Add(1); a.Backend == stalled {
						there.Add(1)
					}
				}
				if a.Backend == stalled && time.Since(began) >= 3*time.Second {
					return testserver.Plan{Ending: testserver.Hang, HeaderAtOnce: true}
				}
				return testserver.Plan{Delay: 2 * ms}
			}
			_, client := play(t, testserver.Config{Backends: 3, CountsOnly: true, Script: script}, s,
				over(roundRobin, fmt.Sprintf(`"silence": %v`, tc.off != nil)))
			// share makes calls for 3 s, and returns the share of them on the backend that is silent
			// from 3 s on.
			share := func(opts ...grpc.CallOption) float64 {
				there.Store(0)
				primaries.Store(0)
				var call kind = func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
					_ ...grpc.CallOption) (*testpb.Reply, error) {
					reply, err := tc.kind(ctx, c, req, opts...)
					if err == nil && !tc.hedged {
						if up, err := c.ClientStream(ctx, opts...); err == nil {
							_, _ = up.CloseAndRecv()
						}
					}
					return reply, err
				}
				call.traffic(t, client, simulation.Client{Rate: 30, Lasts: 3 * time.Second, Deadline: 200 * ms, Seed: 1},
					codes.DeadlineExceeded)
				return float64(there.Load()) / float64(primaries.Load())
			}
			share()
			if tc.off != nil {
				if share, moved := share(), s.Methods()[0].Moved; share > 0.25 || moved < 8 {
					t.Errorf("the silent backend has %.2f of the primaries, and %d were moved", share, moved)
				}
				tc.off(t, s)
			}
			before := s.Methods()[0].Moved
			if share, moved := share(tc.option...), s.Methods()[0].Moved-before; share < 0.3 || moved > 0 {
				t.Errorf("silence off: the silent backend has %.2f of the primaries, and %d were moved", share, moved)
			}
		})
	}
}

// In TestSilence_OfAShard one of the two backends that the child picks hangs for 40 seconds. Primaries
// move to the other one, and none to the third backend, which the child does not pick. Once all are
// moved, only calls that may be hedged are probes. When these have ended, other calls find that the
// backend answers.
func TestSilence_OfAShard(t *testing.T) {
	longtest.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		const hangs, ends, last = 5 * time.Second, 45 * time.Second, 165 * time.Second
		s, began := hedgetest.New(t, hedge.WithReadOnlyMethods(testpb.TestService_Unary_FullMethodName)), time.Now()
		var outside atomic.Int64
		_, client := play(t, testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
			if a.Backend == 2 {
				outside.Add(1)
			}
			if at := time.Since(began); a.Backend == stalled && at > hangs && at < ends {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{Delay: 2 * ms}
		}}, s, over(shard))
		var failed, there atomic.Int64 // of writes
		var mixed kind = func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
			_ ...grpc.CallOption) (*testpb.Reply, error) {
			at := time.Since(began)
			if req.Id%7 == 0 && at < ends-5*time.Second { // the last read comes before the backend answers
				return c.Unary(ctx, req)
			}
			reply, err := c.UnaryIdempotent(ctx, req)
			if err != nil && at > hangs+20*time.Second { // all are moved by now
				failed.Add(1)
			}
			if err == nil && reply.Backend == stalled && at > last-30*time.Second {
				there.Add(1)
			}
			return reply, err
		}
		all := mixed.traffic(t, client, simulation.Client{Rate: 30, Lasts: last, Deadline: time.Second, Seed: 1},
			codes.DeadlineExceeded)
		moved := s.Methods()[0].Moved // of the target
		if failed.Load() > 0 || outside.Load() > 0 || moved < 100 || there.Load() < int64(len(all)/25) {
			t.Errorf("%d writes failed as probes, %d attempts met a backend that the child does not pick, %d primaries "+
				"moved; of %d calls %d met the backend afterwards", failed.Load(), outside.Load(), moved, len(all), there.Load())
		}
	})
}

// In TestSilence_LargeRequests a backend hangs for 30 seconds. Requests that are too large for a hedge
// are not sent there as probes, and other calls find that it answers again.
func TestSilence_LargeRequests(t *testing.T) {
	longtest.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		const hangs, moved, ends, last = 5 * time.Second, 15 * time.Second, 35 * time.Second, 50 * time.Second
		s, began, large := hedgetest.All(t), time.Now(), make([]byte, 1<<20)
		isLarge := func(id uint64) bool { return id%4 > 0 }
		var probes, again atomic.Int64
		_, client := play(t, testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
			at := time.Since(began)
			if a.Backend != stalled || at < hangs {
				return testserver.Plan{Delay: 2 * ms}
			}
			if at > ends {
				again.Add(1)
				return testserver.Plan{Delay: 2 * ms}
			}
			if isLarge(a.ID) && at > moved {
				probes.Add(1)
			}
			return testserver.Plan{Ending: testserver.Hang}
		}}, s, over(roundRobin))
		var mixed kind = func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
			_ ...grpc.CallOption) (*testpb.Reply, error) {
			if isLarge(req.Id) {
				req.Payload = large
			}
			return c.Unary(ctx, req)
		}
		mixed.traffic(t, client, simulation.Client{Rate: 30, Lasts: last, Deadline: time.Second, Seed: 1},
			codes.DeadlineExceeded)
		if probes.Load() > 0 || again.Load() < 100 {
			t.Errorf("%d large requests were probes; the backend had %d calls afterwards", probes.Load(), again.Load())
		}
	})
}

// simulated skips a simulation that only HEDGE_TESTS=long needs.
func simulated(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
}

// outcome is the outcome of traffic to three backends.
type outcome struct {
	simulation.Calls
	row     stats.Method
	records []testserver.Record
}

// simulate sends traffic to three backends in virtual time.
func simulate(t *testing.T, name string, c testserver.Config, policy string,
	script func(began time.Time) testserver.Script, calls simulation.Client, may ...codes.Code) (o outcome) {
	c.Backends, c.DrawByID = 3, true
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, calls.Options...)
		cluster, client := play(t, c, s, bare(policy))
		cluster.SetScript(script(time.Now()))
		o.Calls = unary.traffic(t, client, calls, may...)
		synctest.Wait()
		o.row, o.records = s.Methods()[0], cluster.Records()
	})
	t.Logf("%s: p50 %v, p99 %v, p99.9 %v; %.1f%% fail; %.1f%% extra load, %.2f%% moved", name, o.Tail(0.50), o.Tail(0.99),
		o.Tail(0.999), o.Failed(), 100*o.row.HedgeRate(), 100*float64(o.row.Moved)/float64(len(o.Calls)))
	return o
}

// stalling stalls the first backend for the first second of every five, beginning at phase, as in
// a long garbage collection: it answers calls that arrive in this second afterwards.
func stalling(distribution testserver.Distribution, phase time.Duration) func(time.Time) testserver.Script {
	return func(began time.Time) testserver.Script {
		return func(a testserver.Attempt) testserver.Plan {
			delay := a.Draw(distribution)
			if at := (a.Arrival.Sub(began) + phase) % (5 * time.Second); a.Backend == stalled && at < time.Second {
				delay += time.Second - at
			}
			return testserver.Plan{Delay: delay}
		}
	}
}

func TestStalledBackend(t *testing.T) {
	simulated(t)
	run := func(name, policy string, hedges int) (p99 time.Duration, again int) {
		o := simulate(t, name, testserver.Config{Seed: 1}, policy, stalling(testserver.Uniform(2*ms, 8*ms), time.Second),
			simulation.Client{Rate: 200, Calls: 4_000, Seed: 1, Options: []hedge.Option{hedge.WithMaxHedges(hedges),
				// A third of the calls meets the stall while it lasts, which is more than the default
				// of 10% pays for.
				hedge.WithBudgetPercent(20)}})
		met := map[uint64]bool{}
		for _, record := range o.records { // in the order of arrival
			if record.Backend == stalled && met[record.ID] {
				again++
			}
			met[record.ID] = met[record.ID] || record.Backend == stalled
		}
		t.Logf("%s: %d of %d hedges met the stalled backend again", name, again, o.row.Hedges)
		return o.Tail(0.99), again
	}
	fewest, _ := run("least request", leastRequest, 0)
	if both, _ := run("least request, hedged elsewhere", wrapped(leastRequest), 2); both > fewest/4 {
		t.Errorf("p99 with least request %v, hedged %v", fewest, both)
	}
	plain, _ := run("plain", firstOn, 0)
	for hedges := 1; hedges <= 2; hedges++ {
		hedged, again := run(fmt.Sprintf("hedged, up to %d", hedges), firstOn, hedges)
		elsewhere, never := run(fmt.Sprintf("hedged elsewhere, up to %d", hedges), wrapped(firstOn), hedges)
		if again == 0 || never != 0 || elsewhere > plain/20 || elsewhere > hedged {
			t.Errorf("p99 %v plain, %v hedged, %v elsewhere; %d and %d hedges met the stalled backend again", plain, hedged,
				elsewhere, again, never)
		}
	}
}

// TestSilence_FalseAlarms checks that few primaries are moved, and that the tail is unchanged, if
// no backend stalls.
func TestSilence_FalseAlarms(t *testing.T) {
	simulated(t)
	const ofWorker = 3 * 4 / 0.008 // calls a second
	for _, tc := range []struct {
		name, distribution string
		rate               float64
		workers            int
	}{
		{name: "straggler", distribution: "straggler", rate: 500},
		{name: "few calls", distribution: "straggler", rate: 50},
		{name: "ttft", distribution: "ttft", rate: 500},
		{name: "outage", distribution: "straggler", rate: 500},
		{name: "saturated", distribution: "exponential:8ms", rate: .70 * ofWorker, workers: 4},
		{name: "saturated more", distribution: "exponential:8ms", rate: .95 * ofWorker, workers: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			distribution := testserver.DistributionT(t, tc.distribution)
			script := func(began time.Time) testserver.Script {
				return func(a testserver.Attempt) testserver.Plan {
					p := testserver.Plan{Delay: a.Draw(distribution), HeaderAtOnce: true}
					if at := a.Arrival.Sub(began); tc.name == "outage" && at > 10*time.Second && at < 20*time.Second {
						p.Delay += time.Second
					}
					return p
				}
			}
			calls, seeds := longtest.Table(5_000, 5_000, 20_000), uint64(1)
			// The tail of a queue depends on the order of a few calls, so several seeds are averaged,
			// and near saturation the tail is not checked.
			if tc.workers > 0 {
				seeds, calls = 8, max(calls, 10_000)
			}
			var with, without time.Duration
			for seed := range seeds {
				run := func(name, policy string) outcome {
					return simulate(t, name, testserver.Config{Seed: 1, Workers: tc.workers, CountsOnly: true}, policy, script,
						simulation.Client{Rate: tc.rate, Calls: calls, Seed: 1 + seed})
				}
				without += run("without silence", wrapped(roundRobin, `"silence": false`)).Tail(0.99)
				o := run("with silence", wrapped(roundRobin))
				if with += o.Tail(0.99); o.row.Moved > int64(calls/100) {
					t.Errorf("%d of %d primaries were moved", o.row.Moved, calls)
				}
			}
			if float64(with) > 1.01*float64(without) && tc.name != "saturated more" {
				t.Errorf("p99 %v, %v without, of %d seeds", with/time.Duration(seeds), without/time.Duration(seeds), seeds)
			}
		})
	}
}

// In TestSilence_AfterAStall a healthy but slow backend stalls once. During the stall the delay
// that is learned from the other backends becomes too short for it. Two minutes later it has half
// of its share again, and after five minutes 95%. No call fails, nor at a deadline of 200 ms as a
// probe.
func TestSilence_AfterAStall(t *testing.T) {
	longtest.Simulation(t)
	const slice = 30 * time.Second
	large := []hedge.Option{hedge.WithBudgetPercent(50)} // the delay excludes the slow backend at any time
	for _, tc := range []struct {
		name                   string
		later, stall, deadline time.Duration
		options                []hedge.Option
	}{
		{name: "15 ms", later: 15 * ms, stall: 40 * time.Second},
		{name: "200 ms", later: 200 * ms, stall: 40 * time.Second},
		{name: "not slower", stall: 2 * time.Minute, deadline: 200 * ms},
		{name: "15 ms, large budget", later: 15 * ms, stall: 40 * time.Second, options: large},
		{name: "200 ms, no stall, large budget", later: 200 * ms, options: large},
		{name: "short stall", later: 15 * ms, stall: 5 * time.Second},
		{name: "long stall", later: 15 * ms, stall: 5 * time.Minute},
	}[:longtest.Table(1, 3, 7)] {
		t.Run(tc.name, func(t *testing.T) {
			parts, end := longtest.Size(5, 11), time.Minute+tc.stall
			for seed := range uint64(longtest.Table(1, 1, 20)) {
				all, slow := make([]atomic.Int64, parts+1), make([]atomic.Int64, parts+1)
				distribution := testserver.LogNormal(5*ms, 2*ms)
				simulate(t, fmt.Sprint(seed), testserver.Config{Seed: seed, CountsOnly: true}, wrapped(roundRobin),
					func(began time.Time) testserver.Script {
						return func(a testserver.Attempt) testserver.Plan {
							at, delay, here := a.Arrival.Sub(began), a.Draw(distribution), a.Backend == stalled
							if a.Number == 0 && at >= end {
								if all[(at-end)/slice].Add(1); here {
									slow[(at-end)/slice].Add(1)
								}
							}
							if here && (tc.stall > 0 || at >= time.Minute) {
								delay += tc.later
							}
							if here && at >= time.Minute && at < end {
								delay += end - at
							}
							return testserver.Plan{Delay: delay}
						}
					}, simulation.Client{Rate: 200, Lasts: end + time.Duration(parts)*slice, Deadline: tc.deadline, Seed: seed,
						Options: tc.options})
				for i := range parts {
					share := 3 * float64(slow[i].Load()) / float64(all[i].Load())
					if i >= 4 && share < 0.5 || i >= 10 && share < 0.95 {
						t.Errorf("seed %d: after %v it has %.2f of its share", seed, time.Duration(i)*slice, share)
					}
				}
			}
		})
	}
}

// In TestSilence_Overload a backend stalls for a minute, and the others can handle all of its calls,
// or few. Backends serve one call at a time, canceled calls included. No more calls fail than
// without hedging.
func TestSilence_Overload(t *testing.T) {
	longtest.Simulation(t)
	const service, from, to = 8 * ms, 20 * time.Second, 80 * time.Second
	script := func(began time.Time) testserver.Script {
		distribution := testserver.Exponential(service)
		var mu sync.Mutex
		var free [3]time.Time // when the backend has done all requests that arrived
		return func(a testserver.Attempt) testserver.Plan {
			mu.Lock()
			defer mu.Unlock()
			now, f := time.Now(), &free[a.Backend]
			if now.After(*f) {
				*f = now
			}
			if end := began.Add(to); a.Backend == stalled && now.Sub(began) >= from && f.Before(end) {
				*f = end
			}
			*f = f.Add(a.Draw(distribution))
			return testserver.Plan{Delay: f.Sub(now)}
		}
	}
	for _, load := range []float64{0.85, 0.50, 0.75}[:longtest.Size(2, 3)] {
		t.Run(fmt.Sprintf("%.0f%%", 100*load), func(t *testing.T) {
			failed := map[string]float64{}
			for seed := range uint64(longtest.Table(1, 1, 5)) {
				run := func(name, policy string, hedges int) {
					o := simulate(t, name, testserver.Config{Seed: seed, CountsOnly: true}, policy, script,
						simulation.Client{Rate: 3 * load / service.Seconds(), Lasts: to, Deadline: time.Second, Seed: seed,
							Options: []hedge.Option{hedge.WithMaxHedges(hedges)}}, codes.DeadlineExceeded)
					f := o.Between(from, to).Failed()
					t.Logf("%s: of the minute %.1f%% fail", name, f)
					failed[name] += f
				}
				run("plain", firstOn, 0)
				run("with silence", wrapped(firstOn), 2)
				if longtest.Full() {
					run("without silence", wrapped(firstOn, `"silence": false`), 2)
				}
			}
			// At 85% the other backends have 127% of their capacity, and chance decides a single run. At 50% a
			// run has 1.1 to 1.6%, by the order of goroutines, and 25% without silence.
			plain, with := failed["plain"], failed["with silence"]
			if with > 1.01*plain || load == 0.50 && with > plain/10 {
				t.Errorf("%.1f%% of calls fail, %.1f%% plain", with, plain)
			}
		})
	}
}

// In TestSilence_OfAPool one of three backends hangs for a minute. Each connection of a large pool
// makes few calls, and learns from the others that the backend is silent.
func TestSilence_OfAPool(t *testing.T) {
	longtest.Simulation(t)
	const from, to, rate = 20 * time.Second, 80 * time.Second, 100
	for _, tc := range []struct {
		name   string
		pool   int
		policy string
		opts   []hedge.Option
		most   float64 // calls that fail, in percent of the minute's
	}{
		{name: "64 connections", pool: 64, policy: wrapped(firstOn), most: 1},
		{name: "8 connections", pool: 8, policy: wrapped(firstOn), most: 1},
		{name: "64 connections, no silence", pool: 64, policy: wrapped(firstOn, `"silence": false`), most: 100},
		{name: "64 connections, plain", pool: 64, policy: firstOn, opts: []hedge.Option{hedge.WithMaxHedges(0)}, most: 100},
	}[:longtest.Size(1, 4)] {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s, began := hedgetest.All(t, tc.opts...), time.Now()
			cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: 1, CountsOnly: true})
			cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
				if at := time.Since(began); a.Backend == stalled && at >= from && at < to {
					return testserver.Plan{Ending: testserver.Hang}
				}
				return testserver.Plan{Delay: a.Draw(testserver.LogNormal(5*ms, 2*ms))}
			})
			var clients []testpb.TestServiceClient
			for range tc.pool {
				clients = append(clients, connect(t, cluster, s, bare(tc.policy)))
			}
			var turn atomic.Uint64
			var pooled kind = func(ctx context.Context, _ testpb.TestServiceClient, req *testpb.Request,
				_ ...grpc.CallOption) (*testpb.Reply, error) {
				return clients[turn.Add(1)%uint64(tc.pool)].Unary(ctx, req)
			}
			all := pooled.traffic(t, nil, simulation.Client{Rate: rate, Lasts: to + 20*time.Second, Deadline: time.Second,
				Seed: 1}, codes.DeadlineExceeded)
			minute, row := all.Between(from, to), s.Methods()[0]
			t.Logf("%s: %.1f%% of %d calls fail; %d primaries moved, %d hedges", tc.name, minute.Failed(), len(minute),
				row.Moved, row.Hedges)
			if f := minute.Failed(); f > tc.most {
				t.Errorf("%.1f%% of the minute's calls fail, want at most %.1f", f, tc.most)
			}
		})
	}
}

// TestSilence_OfADestination has calls to eu hedged to us. A backend of either stalls after 10 s. If it is
// one of eu, only eu has a silent backend; if it is one of us, hedges avoid that one.
func TestSilence_OfADestination(t *testing.T) {
	longtest.Simulation(t)
	for _, at := range []string{"eu", "us"} {
		eachKind(t, func(t *testing.T, k kind) {
			region := func(name string) *testserver.Cluster {
				began := time.Now()
				return testserver.StartT(t, testserver.Config{Name: name, InMemory: true, Backends: 2,
					Script: func(a testserver.Attempt) testserver.Plan {
						switch stalls := time.Since(began) > 10*time.Second; {
						case name == at && a.Backend == stalled && stalls:
							return testserver.Plan{Ending: testserver.Hang}
						case name == "eu" && a.ID%5 == 0:
							return testserver.Plan{Delay: 100 * ms}
						}
						return testserver.Plan{Delay: 5 * ms}
					}})
			}
			eu, us := region("eu"), region("us")
			s := hedgetest.All(t, hedge.WithBudgetPercent(100))
			far := us.ClientT(t, over(roundRobin))
			conn := eu.ClientT(t, append(interceptor.DialOptions(s, interceptor.HedgeTo(far)), over(roundRobin))...)
			testserver.ConnectT(t, conn)
			testserver.ConnectT(t, far)
			synctest.Wait()
			client := testpb.NewTestServiceClient(conn)
			for id := range uint64(1500) {
				go func() {
					if _, err := k(t.Context(), client, &testpb.Request{Id: id}); err != nil {
						t.Errorf("call %d: %v", id, err)
					}
				}()
				time.Sleep(20 * ms)
			}
			time.Sleep(time.Second)
			for _, m := range s.Methods() {
				if silent := len(m.Silent) > 0; silent != (at == "eu" && m.Target == eu.Target()) {
					t.Errorf("%s has %d silent backends while one of %s stalls", m.Target, len(m.Silent), at)
				}
			}
			met, hedges := 0, us.Counts().Hedges
			for _, record := range us.Records() {
				if record.Backend == stalled && record.Number > 0 {
					met++
				}
			}
			t.Logf("a backend of %s stalls: %d of %d hedges went to the first backend of us", at, met, hedges)
			if hedges < 100 || at == "us" && met > int(hedges)/3 {
				t.Errorf("%d of %d hedges met the stalled backend of us, want less than a third of 100 or more", met, hedges)
			}
		})
	}
}
