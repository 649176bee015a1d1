package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// traffic is calls at a rate by a number of callers. A call begins on time, or as soon as a caller
// is free.
type traffic struct {
	rate, callers int
	streams       bool
	lasts         time.Duration
	limit         *testserver.Limit
	hedged        bool
	options       []hedge.Option
	backends      int // 0 is 1
	during        func(*testserver.Cluster)
	every         func(*hedge.Scheduler) // once a second, if hedged
}

// seen is the result of traffic.
type seen struct {
	took   []time.Duration // sorted
	failed []error
	conns  testserver.ConnCounts
	stats  stats.Counts
}

func (tr traffic) run(t *testing.T) (s seen) {
	t.Helper()
	distribution := testserver.DistributionT(t, "straggler")
	synctest.Test(t, func(t *testing.T) {
		limit := tr.limit
		if limit == nil {
			limit = new(testserver.Limit) // which only counts
		}
		cluster := testserver.StartT(t, testserver.Config{Backends: tr.backends, InMemory: true, Latency: distribution,
			Seed: 1, DrawByID: true, CountsOnly: true, Limit: limit})
		var options []grpc.DialOption
		scheduler := hedgetest.All(t, tr.options...)
		if tr.hedged {
			options = append(options, hedgetest.Interceptors(scheduler)...)
		}
		backoffs := backoff.Config{BaseDelay: 100 * ms, MaxDelay: 100 * ms}
		conn := cluster.ClientT(t, append(options, grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoffs}))...)
		testserver.ConnectT(t, conn)
		if tr.during != nil {
			go tr.during(cluster)
		}
		if tr.every != nil {
			go func() {
				for end := time.Now().Add(tr.lasts); time.Now().Before(end); time.Sleep(time.Second) {
					tr.every(scheduler)
				}
			}()
		}
		tr.makeCalls(t, testpb.NewTestServiceClient(conn), &s)
		if tr.hedged {
			s.stats = scheduler.Stats()
		}
		time.Sleep(time.Minute)
		s.conns = cluster.ConnCounts()
	})
	return s
}

func (tr traffic) makeCalls(t *testing.T, client testpb.TestServiceClient, s *seen) {
	calls := int64(tr.lasts.Seconds() * float64(tr.rate))
	began := time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	var next atomic.Int64
	for range tr.callers {
		group.Go(func() {
			for id := next.Add(1); id <= calls; id = next.Add(1) {
				time.Sleep(time.Until(began.Add(time.Duration(id-1) * time.Second / time.Duration(tr.rate))))
				at := time.Now()
				err := tr.call(t.Context(), client, uint64(id))
				mu.Lock()
				s.took = append(s.took, time.Since(at))
				if err != nil {
					s.failed = append(s.failed, fmt.Errorf("call %d after %v: %w", id, time.Since(began), err))
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(s.took)
}

func (tr traffic) call(ctx context.Context, client testpb.TestServiceClient, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !tr.streams {
		req := &testpb.Request{Id: id}
		reply, err := client.Unary(ctx, req)
		return errors.Join(err, testserver.Check(req, 0, reply))
	}
	req := &testpb.Request{Id: id, Messages: 3}
	st, err := client.ServerStream(ctx, req)
	n := uint32(0)
	for ; err == nil; n++ {
		var reply *testpb.Reply
		if reply, err = st.Recv(); err == nil {
			err = testserver.Check(req, n, reply)
		}
	}
	if err == io.EOF {
		return nil
	}
	if n > 1 {
		err = errors.Join(errBegun, err)
	}
	return fmt.Errorf("at message %d: %w", n-1, err)
}

// errBegun marks a stream that failed after its first message, when no attempt can replace it.
var errBegun = errors.New("the stream had begun")

// mayBeRepeated returns the failures of calls that may be sent again: all but streams that had
// begun.
func (s *seen) mayBeRepeated() []error {
	return slices.DeleteFunc(slices.Clone(s.failed), func(err error) bool { return errors.Is(err, errBegun) })
}

// TestRule07_ServersThatCountResets has servers that cut connections for resets. No call fails that
// may be sent again, none at all after the first cut or where the limit is set, and hedging goes on
// and makes nothing slower.
func TestRule07_ServersThatCountResets(t *testing.T) {
	longtest.Simulation(t)
	set := func(n int, per time.Duration) []hedge.Option { return []hedge.Option{hedge.WithResetLimit(n, per)} }
	likes := longtest.First(3, []struct {
		name    string
		limit   testserver.Limit
		options []hedge.Option
	}{
		{"Armeria, small", testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, nil},
		{"Apache, set", testserver.LimitLikeApache, set(20, time.Second)},
		{"1,000, graceful", testserver.LimitLikeNode, nil},
		{"Armeria", testserver.LimitLikeArmeria, nil},
		{"silent, set", testserver.Limit{Resets: 400, Per: time.Minute, Close: testserver.CloseSilently},
			set(400, time.Minute)},
	})
	type load struct{ rate, callers int }
	for _, streams := range []bool{false, true} {
		for _, l := range []load{{500, 64}, {500, 16}, {5000, 64}, {5000, 16}}[:longtest.Table(1, 2, 4)] {
			lasts := time.Duration(longtest.Table(20, 60, 600)) * time.Second
			plain := traffic{rate: l.rate, callers: l.callers, streams: streams, lasts: lasts}
			var without seen
			var compared sync.Once
			for _, tc := range likes {
				t.Run(fmt.Sprintf("%s,streams=%v,rate=%d,callers=%d", tc.name, streams, l.rate, l.callers), func(t *testing.T) {
					compared.Do(func() { without = plain.run(t) })
					limited := plain
					limited.hedged, limited.limit, limited.options = true, &tc.limit, tc.options
					got := limited.run(t)
					if failed := got.mayBeRepeated(); len(failed) > 0 || tc.options != nil && len(got.failed) > 0 {
						t.Errorf("%d of %d calls failed, %d of them might have been sent again: %v", len(got.failed), len(got.took),
							len(failed), failed)
					}
					if p99, most := quantile(got.took, 0.99), quantile(without.took, 0.99); float64(p99) > 1.1*float64(most) {
						t.Errorf("p99 %v, plain %v", p99, most)
					}
					most := without.conns.Connections + 1
					if tc.limit == testserver.LimitLikeNode { // which replaces a connection after 1,000 resets
						most += got.conns.Resets / 1000
					}
					if got.conns.Connections > most || got.stats.HedgeWins < 10 {
						t.Errorf("%d connections, without hedging %d; %+v", got.conns.Connections, without.conns.Connections, got.stats)
					}
				})
			}
		}
	}
}

// TestRule03_ACutAfterAStop stalls one backend of three for a second, three times. Hedges of the
// calls there spend the budget. Then the server cuts the connection for the losers' resets, as
// tonic does. The calls that the cut failed are still sent again.
func TestRule03_ACutAfterAStop(t *testing.T) {
	longtest.Simulation(t)
	latency := testserver.DistributionT(t, "straggler")
	stops := func(c *testserver.Cluster) {
		for range 3 {
			time.Sleep(4 * time.Second)
			resumes := time.Now().Add(time.Second)
			c.SetScript(func(a testserver.Attempt) testserver.Plan {
				p := testserver.Plan{Delay: a.Draw(latency)}
				if a.Backend == 0 {
					p.Delay += time.Until(resumes)
				}
				return p
			})
			time.Sleep(time.Second)
			c.SetScript(nil)
		}
	}
	for _, resets := range []int{40, 80} { // with fewer the budget is not yet spent
		limit := testserver.Limit{Resets: resets, Per: time.Second, Close: testserver.CloseCalm}
		got := traffic{rate: 300, callers: 1000, lasts: 16 * time.Second, hedged: true, limit: &limit, backends: 3,
			during: stops}.run(t)
		if len(got.failed) > 0 || got.stats.Repeated == 0 {
			t.Errorf("%d resets: %d repeated, %v", resets, got.stats.Repeated, got.failed)
		}
	}
}

// TestRule07_CutsThatAreNotForResets lets connections end for other reasons. No such end limits
// hedges.
func TestRule07_CutsThatAreNotForResets(t *testing.T) {
	longtest.Simulation(t)
	lasts := time.Duration(longtest.Table(85, 240, 600)) * time.Second
	restart := func(c *testserver.Cluster, backend int, down time.Duration, stop func(int)) {
		time.Sleep(15 * time.Second)
		stop(backend)
		time.Sleep(down)
		if err := c.Restart(backend); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range longtest.First(3, []struct {
		name     string
		backends int
		limit    *testserver.Limit
		during   func(*testserver.Cluster)
	}{
		{"a connection age", 1, nil, func(c *testserver.Cluster) {
			for range int(lasts/time.Second)/15 - 1 {
				restart(c, 0, 0, c.Stop)
			}
		}},
		{"an outage", 1, nil, func(c *testserver.Cluster) { restart(c, 0, 10*time.Second, c.Stop) }},
		{"1,000 requests a connection", 1, &testserver.LimitThousandRequests, nil},
		{"a rolling restart", 3, nil, func(c *testserver.Cluster) {
			for b := range 3 {
				restart(c, b, time.Second, []func(int){c.Stop, c.Drain}[b%2])
			}
		}},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			var limited, seconds, quiet, longestQuiet int
			var hedges int64
			got := traffic{rate: longtest.Table(12, 30, 100), callers: 64, hedged: true, lasts: lasts, backends: tc.backends,
				limit: tc.limit, during: tc.during, every: func(s *hedge.Scheduler) {
					seconds++
					if rows := s.Methods(); len(rows) > 0 && rows[0].Resets.Learned > 0 {
						limited++
					}
					quiet++
					if now := s.Stats().Hedges; now > hedges || seconds < 10 {
						hedges, quiet = now, 0
					}
					longestQuiet = max(longestQuiet, quiet)
				}}.run(t)
			if limited > 0 || longestQuiet > 20 {
				t.Errorf("hedges were limited for %d s; no hedge for %d s", limited, longestQuiet)
			}
			if tc.limit != nil && len(got.failed) > 0 {
				t.Errorf("calls failed where connections end gracefully: %v", got.failed)
			}
		})
	}
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}
