package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// traffic is calls at a rate, made by so many callers: none begins before its time, and one whose callers are all busy begins
// later.
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

// seen is what came of it.
type seen struct {
	took         []time.Duration // sorted
	failed       []error
	failedAt     map[error]time.Time
	firstFailure time.Time
	conns        testserver.ConnCounts
	stats        stats.Counts
	resets       stats.Resets
}

func (tr traffic) run(t *testing.T) (s seen) {
	t.Helper()
	distribution := testserver.DistributionT(t, "straggler")
	synctest.Test(t, func(t *testing.T) {
		limit := tr.limit
		if limit == nil {
			limit = new(testserver.Limit) // which only counts
		}
		cluster := testserver.StartT(t, testserver.Config{Backends: tr.backends, InMemory: true, Latency: distribution, Seed: 1, DrawByID: true, CountsOnly: true, Limit: limit})
		var options []grpc.DialOption
		scheduler := newResetScheduler(t, tr.options...)
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
			var watching sync.WaitGroup
			defer watching.Wait()
			watching.Go(func() {
				for end := time.Now().Add(tr.lasts); time.Now().Before(end); time.Sleep(time.Second) {
					tr.every(scheduler)
				}
			})
		}
		tr.makeCalls(t, testpb.NewTestServiceClient(conn), &s)
		if tr.hedged {
			s.stats, s.resets = scheduler.Stats(), scheduler.Targets()[0].Resets
		}
		time.Sleep(time.Minute)
		s.conns = cluster.ConnCounts()
	})
	return s
}

func newResetScheduler(t *testing.T, options ...hedge.Option) *hedge.Scheduler {
	t.Helper()
	return hedgetest.All(t, options...)
}

func (tr traffic) makeCalls(t *testing.T, client testpb.TestServiceClient, s *seen) {
	calls := int(tr.lasts.Seconds() * float64(tr.rate))
	began := time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	next := 0
	for range tr.callers {
		group.Go(func() {
			for {
				mu.Lock()
				id := next
				next++
				mu.Unlock()
				if id >= calls {
					return
				}
				time.Sleep(time.Until(began.Add(time.Duration(id) * time.Second / time.Duration(tr.rate))))
				at := time.Now()
				err := tr.call(t.Context(), client, uint64(id)+1)
				mu.Lock()
				s.took = append(s.took, time.Since(at))
				if err != nil {
					if s.failedAt == nil {
						s.failedAt, s.firstFailure = map[error]time.Time{}, time.Now()
					}
					err = fmt.Errorf("call %d after %v: %w", id, time.Since(began), err)
					s.failed = append(s.failed, err)
					s.failedAt[err] = time.Now()
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
	defer cancel() // as callers do, and losers that are left must not notice
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

// errBegun says that a stream failed after its first message, when no other attempt can take its place.
var errBegun = errors.New("the stream had begun")

// failedLater returns the failures after the first cut. A stream may have begun at a cut: then no other attempt can take its
// place.
func (s *seen) failedLater() (later []error) {
	for _, err := range s.failed {
		if !errors.Is(err, errBegun) && s.failedAt[err].Sub(s.firstFailure) > 100*ms {
			later = append(later, err)
		}
	}
	return later
}

// TestRule07_ServersThatCountResets has servers that cut connections for resets: hedging makes no call fail after the first cut,
// or none where the limit is set, and helps as much as elsewhere.
func TestRule07_ServersThatCountResets(t *testing.T) {
	longtest.Simulation(t)
	type like struct {
		name    string
		limit   testserver.Limit
		options []hedge.Option
	}
	set := func(n int, per time.Duration) []hedge.Option { return []hedge.Option{hedge.WithResetLimit(n, per)} }
	likes := longtest.First(3, []like{
		{"Armeria, small", testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, nil},
		{"Apache, set", testserver.LimitLikeApache, set(20, time.Second)},
		{"Armeria", testserver.LimitLikeArmeria, nil},
		{"Netty", testserver.Limit{Resets: 200, Per: 30 * time.Second, Close: testserver.CloseCalm}, nil},
		{"silent, set", testserver.Limit{Resets: 400, Per: time.Minute, Close: testserver.CloseSilently}, set(400, time.Minute)},
		{"nghttpx", testserver.LimitLikeNode, nil},
		{"nginx", testserver.LimitThousandRequests, nil},
	})
	type load struct{ rate, callers int }
	for _, streams := range []bool{false, true} {
		for _, l := range []load{{500, 64}, {500, 16}, {5000, 64}, {5000, 16}}[:longtest.Table(1, 2, 4)] {
			lasts := time.Duration(longtest.Table(2, 10, 60)) * time.Second
			tr := traffic{rate: l.rate, callers: l.callers, streams: streams, lasts: lasts}
			hedged := tr
			hedged.hedged = true
			var plain, free seen // what they are compared with, which is run only if one of them is
			var compared sync.Once
			for _, tc := range likes {
				t.Run(fmt.Sprintf("%s,streams=%v,rate=%d,callers=%d", tc.name, streams, l.rate, l.callers), func(t *testing.T) {
					compared.Do(func() { plain, free = tr.run(t), hedged.run(t) })
					limited := hedged
					limited.limit, limited.options = &tc.limit, tc.options
					got := limited.run(t)
					base := plain
					if tc.limit.Requests > 0 {
						limited.hedged = false
						base = limited.run(t)
					}
					t.Logf("%d of %d failed %v; p99 %v, without the limit %v, plain %v; %d resets, without %d; connections %d, plain %d; %d repeated, %d left; %+v",
						len(got.failed), len(got.took), got.failed[:min(1, len(got.failed))], quantile(got.took, 0.99), quantile(free.took, 0.99), quantile(plain.took, 0.99),
						got.conns.Resets, free.conns.Resets, got.conns.Connections, base.conns.Connections, got.stats.Repeated, got.stats.Left, got.resets)
					if failed := got.failedLater(); len(failed) > 0 || tc.options != nil && len(got.failed) > 0 {
						t.Errorf("%d of %d calls failed, %d after the first cut: %v", len(got.failed), len(got.took), len(failed), failed)
					}
					if p99, want := quantile(got.took, 0.99), quantile(free.took, 0.99); float64(p99) > 1.1*float64(want) {
						t.Errorf("p99 %v, without the limit %v", p99, want)
					}
					most := base.conns.Connections + 3
					if tc.limit.Requests > 0 { // hedges are requests
						most += base.conns.Connections / 10
					}
					if got.conns.Connections > most {
						t.Errorf("%d connections, without hedging %d", got.conns.Connections, base.conns.Connections)
					}
				})
			}
		}
	}
}

// TestRule07_CutsThatAreNotForResets lets connections end for other reasons. No such end is taken for a punishment for longer
// than a minute, and hedging goes on.
func TestRule07_CutsThatAreNotForResets(t *testing.T) {
	longtest.Simulation(t)
	lasts := time.Duration(longtest.Table(85, 240, 600)) * time.Second
	rate := longtest.Table(12, 30, 100)
	restart := func(c *testserver.Cluster, backend int, down time.Duration, stop func(int)) {
		stop(backend)
		time.Sleep(down)
		if err := c.Restart(backend); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range longtest.First(2, []struct {
		name     string
		backends int
		limit    *testserver.Limit
		during   func(*testserver.Cluster)
	}{
		{"a connection age of 20 s", 1, nil, func(c *testserver.Cluster) {
			for at := time.Duration(0); at < lasts-20*time.Second; at += 20 * time.Second {
				time.Sleep(20 * time.Second)
				restart(c, 0, 0, c.Stop)
			}
		}},
		{"an outage", 1, nil, func(c *testserver.Cluster) {
			time.Sleep(15 * time.Second)
			restart(c, 0, 10*time.Second, c.Stop)
		}},
		{"a crash loop", 1, nil, func(c *testserver.Cluster) {
			for at := time.Duration(0); at < lasts-61*time.Second; at += 61 * time.Second {
				time.Sleep(60 * time.Second)
				restart(c, 0, time.Second, c.Stop)
			}
		}},
		{"a rolling restart", 3, nil, func(c *testserver.Cluster) {
			for b := range 3 {
				time.Sleep(15 * time.Second)
				restart(c, b, time.Second, c.Stop)
			}
		}},
		{"a graceful rolling restart", 3, nil, func(c *testserver.Cluster) {
			for b := range 3 {
				time.Sleep(15 * time.Second)
				restart(c, b, time.Second, c.Drain)
			}
		}},
		{"1,000 requests a connection", 1, &testserver.LimitThousandRequests, nil},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			limited, longest, seconds, quiet, longestQuiet := 0, 0, 0, 0, 0
			var hedges int64
			tr := traffic{rate: rate, callers: 64, hedged: true, lasts: lasts, backends: tc.backends, limit: tc.limit, during: tc.during}
			tr.every = func(s *hedge.Scheduler) {
				seconds++
				if rows := s.Targets(); len(rows) == 0 {
					return
				} else if rows[0].Resets.Mode == stats.ResetsUnlimited {
					limited = 0
				} else {
					limited++
				}
				longest = max(longest, limited)
				if now := s.Stats().Hedges; now > hedges || seconds < 10 {
					hedges, quiet = now, 0
				} else {
					quiet++
				}
				longestQuiet = max(longestQuiet, quiet)
			}
			got := tr.run(t)
			plain := traffic{rate: rate, callers: 64, lasts: lasts, backends: tc.backends, limit: tc.limit, during: tc.during}.run(t)
			t.Logf("limited for %d s on end, no hedge for %d s on end; %d of %d failed, plain %d; %d resets, %d left, %d repeated; connections %d, plain %d; %+v",
				longest, longestQuiet, len(got.failed), len(got.took), len(plain.failed), got.conns.Resets, got.stats.Left, got.stats.Repeated,
				got.conns.Connections, plain.conns.Connections, got.resets)
			if longest > 60 {
				t.Errorf("resets were limited for %d s on end", longest)
			}
			if longestQuiet > 20 {
				t.Errorf("no hedge for %d s", longestQuiet)
			}
			// Whether a client that connects again meets the new server at once is chance; if not, it tries again 100 ms later.
			if len(got.failed) > len(plain.failed)+len(plain.failed)/5+15*int(plain.conns.Connections) {
				t.Errorf("%d calls failed, without hedging %d", len(got.failed), len(plain.failed))
			}
		})
	}
}

// TestRule07_PoolsOfConnections has a client whose pool opens one connection after the other, to one backend, and a server that
// never cuts one. All losers are reset, whatever the number of connections.
func TestRule07_PoolsOfConnections(t *testing.T) {
	longtest.Simulation(t)
	for _, size := range []int{1, 2, 9, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, CountsOnly: true, Limit: new(testserver.Limit), Script: func(a testserver.Attempt) testserver.Plan {
					if a.Number == 0 && a.ID%4 == 0 {
						return testserver.Plan{Delay: time.Second}
					}
					return testserver.Plan{Delay: ms}
				}})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithAllMethods(), hedge.WithBudgetPercent(100))
				var pool []testpb.TestServiceClient
				for id := range uint64(2000) {
					if len(pool) < size && id%20 == 0 { // each 2 s
						conn := cluster.ClientT(t, grpc.WithUnaryInterceptor(interceptor.Unary(s)))
						testserver.ConnectT(t, conn)
						pool = append(pool, testpb.NewTestServiceClient(conn))
					}
					if _, err := pool[id%uint64(len(pool))].Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * ms)
				}
				synctest.Wait()
				sum, counts := s.Stats(), cluster.ConnCounts()
				if sum.Left > 0 || counts.Resets != sum.Hedges || sum.HedgeWins < 490 || s.Targets()[0].Resets.Mode != stats.ResetsUnlimited {
					t.Errorf("%d connections: %d losers left, %d resets, %+v, %+v", counts.Connections, sum.Left, counts.Resets, sum, s.Targets()[0].Resets)
				}
			})
		})
	}
}
