package acceptance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// phase is a time in which each call has an attempt of 10 ms, or a primary of slow in one of twenty
// calls. Each attempt ends with err.
type phase struct {
	context context.Context // of calls; nil: the test's
	slow    time.Duration
	timeout time.Duration // of calls; 0: none
	err     error
}

// run makes twenty calls a second for three minutes.
func (p phase) run(t *testing.T, s *hedge.Scheduler) {
	var group sync.WaitGroup
	parent, timeout := t.Context(), time.Hour
	if p.context != nil {
		parent = p.context
	}
	if p.timeout > 0 {
		timeout = p.timeout
	}
	for id := range 3600 {
		group.Go(func() {
			var attempts atomic.Int32
			ctx, cancel := context.WithTimeout(parent, timeout)
			defer cancel()
			_, _ = hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
				took := 10 * ms
				if attempts.Add(1) == 1 && id%20 == 0 && p.slow > 0 || p.timeout > 0 {
					took = p.slow
				}
				if _, gone := hedgetest.Taking(took)(ctx); gone != nil {
					return 0, gone
				}
				return 0, p.err
			})
		})
		time.Sleep(50 * ms)
	}
	group.Wait()
}

// TestRecent_IsWhatCallersGet has phases of three minutes one after the other. Recent counts and the
// tail are of the current phase, and of all its calls, whatever is learned from them.
func TestRecent_IsWhatCallersGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(20*ms)))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		var before stats.Method
		for _, tc := range []struct {
			name string
			phase
			tail   time.Duration // of callers
			failed int64         // of the phase
			hedged bool          // some failed with a hedge
		}{
			{name: "stragglers, hedged", phase: phase{slow: 300 * ms}, tail: 30 * ms},
			{name: "outage", phase: phase{err: status.Error(codes.Unavailable, "down")}, failed: 3600},
			{name: "no answer before the deadline", phase: phase{slow: time.Second, timeout: 100 * ms}, failed: 3600, hedged: true},
			{name: "canceled by callers", phase: phase{context: canceled}},
			{name: "not found", phase: phase{err: status.Error(codes.NotFound, "")}, tail: 10 * ms},
			{name: "off, and slow", phase: phase{slow: 300 * ms, context: hedge.NewContext(t.Context(), hedge.Off())},
				tail: 300 * ms},
			{name: "healthy again", tail: 10 * ms},
		} {
			tc.run(t, s)
			m := s.Methods()[0]
			r, failed := m.Recent, m.Failed-before.Failed
			if !within(r.P99, tc.tail, 0.02) || failed != tc.failed || (r.Failed > 0) != (tc.failed > 0) ||
				(m.FailedHedged > before.FailedHedged) != tc.hedged {
				t.Errorf("%s: tail %v, want %v; %d failed, want %d; recently %d of %d, and %d with a hedge", tc.name,
					r.P99, tc.tail, failed, tc.failed, r.Failed, r.Calls, m.FailedHedged-before.FailedHedged)
			}
			if r.Over < time.Minute || r.Over > 2*time.Minute+11*time.Second || tc.failed > 0 && r.Failed < r.Calls-1 {
				t.Errorf("%s: %d of %d failed in the last %v", tc.name, r.Failed, r.Calls, r.Over)
			}
			before = m
		}
		time.Sleep(33 * time.Second)
		if tail := s.Methods()[0].Recent.P99; tail != 0 {
			t.Errorf("after half a minute without a call the tail is %v", tail)
		}
	})
}

// TestRecent_AtALowRate has one call in ten seconds. The tail has them all, as long as one is answered
// now and then.
func TestRecent_AtALowRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(time.Second)))
		for n := range 120 {
			hedgetest.Call(t, s, target, method, time.Duration(1+n%30/29*4)*10*ms)
			time.Sleep(10 * time.Second)
		}
		if tail := s.Methods()[0].Recent.P99; !within(tail, 50*ms, 0.02) {
			t.Errorf("p99 is %v, want the 50 ms of one call in thirty", tail)
		}
	})
}

func TestRecent_ControlGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(20*ms)), hedge.WithControl(25))
		phase{err: status.Error(codes.Unavailable, "down")}.run(t, s)
		m := s.Stats()
		if m.Control < 800 || m.Control > 1000 || m.ControlFailed != m.Control || m.Failed != m.Calls {
			t.Errorf("%+v: want 900 calls in the control group, and all failed", m)
		}
	})
}

// TestRule13_WaitsForAConnectionTeachNothing has calls with WaitForReady wait for the end of an
// outage of 30 s. The learned latencies, and the tail after the outage, stay the same,
// whether calls are hedged or only measured.
func TestRule13_WaitsForAConnectionTeachNothing(t *testing.T) {
	for _, gap := range []time.Duration{50 * ms, 500 * ms} { // between calls
		for kind, call := range hedgetest.Kinds {
			for name, opts := range map[string][]hedge.Option{"hedged": nil, "unhedged": {hedge.WithMaxHedges(0)}} {
				hedgetest.Run(t, fmt.Sprintf("%s,%s,every %v", name, kind, gap), func(t *testing.T) {
					s := hedgetest.All(t, opts...)
					cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, CountsOnly: true,
						Latency: testserver.Straggler(testserver.LogNormal(3*ms, ms/2), 0.03, 100)})
					conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), grpc.WithConnectParams(grpc.ConnectParams{
						Backoff: backoff.Config{BaseDelay: 100 * ms, MaxDelay: 200 * ms, Multiplier: 2}}),
						grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
					testserver.ConnectT(t, conn)
					client := testpb.NewTestServiceClient(conn)
					var calls sync.WaitGroup
					var mu sync.Mutex
					var took []time.Duration
					makeCalls := func(lasts time.Duration) {
						for id := range uint64(lasts / gap) {
							calls.Go(func() {
								began := time.Now()
								_, err := call(t.Context(), client, &testpb.Request{Id: id})
								mu.Lock()
								defer mu.Unlock()
								if took = append(took, time.Since(began)); err != nil {
									t.Error(err)
								}
							})
							time.Sleep(gap)
						}
					}
					learned := func() time.Duration {
						m := s.Methods()[0]
						p95, _ := s.Latency(m.Target, m.Method, 0.95)
						return p95
					}
					makeCalls(2 * time.Minute)
					before := learned()
					calls.Wait()
					cluster.Stop(0)
					synctest.Wait()
					makeCalls(30 * time.Second)
					if err := cluster.Restart(0); err != nil {
						t.Fatal(err)
					}
					calls.Wait()
					after := learned()
					took = nil
					makeCalls(time.Minute / 2)
					calls.Wait()
					slices.Sort(took)
					p98 := took[len(took)*98/100]
					t.Logf("p95 %v, and %v after the outage; p98 of calls after it %v", before, after, p98)
					if after > 2*before || name == "hedged" && p98 > 15*ms {
						t.Errorf("p95 is %v after the outage, and was %v before; p98 is %v, want 15 ms if hedged", after, before, p98)
					}
				})
			}
		}
	}
}
