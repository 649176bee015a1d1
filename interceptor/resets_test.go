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
	resets stats.Resets
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
			s.stats, s.resets = scheduler.Stats(), scheduler.Methods()[0].Resets
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
	type like struct {
		name    string
		limit   testserver.Limit
		options []hedge.Option
	}
	set := func(n int, per time.Duration) []hedge.Option { return []hedge.Option{hedge.WithResetLimit(n, per)} }
	likes := longtest.First(4, []like{
		{"Armeria, small", testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, nil},
		{"Apache, set", testserver.LimitLikeApache, set(20, time.Second)},
		{"Armeria", testserver.LimitLikeArmeria, nil},
		{"1,000, graceful", testserver.LimitLikeNode, nil},
		{"Netty", testserver.Limit{Resets: 200, Per: 30 * time.Second, Close: testserver.CloseCalm}, nil},
		{"silent, set", testserver.Limit{Resets: 400, Per: time.Minute, Close: testserver.CloseSilently},
			set(400, time.Minute)},
		{"nghttpx, set", testserver.LimitLikeNode, set(30, time.Second)},
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
					t.Logf("%d of %d failed %v; p99 %v, plain %v; %d hedges, %d resets; connections %d, plain %d; %d repeated; %+v",
						len(got.failed), len(got.took), got.failed[:min(1, len(got.failed))], quantile(got.took, 0.99),
						quantile(without.took, 0.99),
						got.stats.Hedges, got.conns.Resets, got.conns.Connections, without.conns.Connections, got.stats.Repeated,
						got.resets)
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
		t.Logf("%d resets: %d of %d failed; %d cuts, %d hedges, %d repeated; the budget did not pay %d times", resets,
			len(got.failed), len(got.took), got.conns.Cuts, got.stats.Hedges, got.stats.Repeated, got.stats.BudgetExhausted)
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
	rate := longtest.Table(12, 30, 100)
	restart := func(c *testserver.Cluster, backend int, down time.Duration, stop func(int)) {
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
		{"1,000 requests a connection", 1, &testserver.LimitThousandRequests, nil},
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
	}) {
		t.Run(tc.name, func(t *testing.T) {
			limited, seconds, quiet, longestQuiet := 0, 0, 0, 0
			var hedges int64
			tr := traffic{rate: rate, callers: 64, hedged: true, lasts: lasts, backends: tc.backends, limit: tc.limit,
				during: tc.during}
			tr.every = func(s *hedge.Scheduler) {
				seconds++
				if rows := s.Methods(); len(rows) == 0 {
					return
				} else if rows[0].Resets.Learned > 0 {
					limited++
				}
				if now := s.Stats().Hedges; now > hedges || seconds < 10 {
					hedges, quiet = now, 0
				} else {
					quiet++
				}
				longestQuiet = max(longestQuiet, quiet)
			}
			got := tr.run(t)
			plain := traffic{rate: rate, callers: 64, lasts: lasts, backends: tc.backends, limit: tc.limit,
				during: tc.during}.run(t)
			t.Logf("limited for %d s, no hedge for %d s on end; %d of %d failed, plain %d; %d resets, %d repeated; "+
				"connections %d, plain %d",
				limited, longestQuiet, len(got.failed), len(got.took), len(plain.failed), got.conns.Resets, got.stats.Repeated,
				got.conns.Connections, plain.conns.Connections)
			if limited > 0 {
				t.Errorf("hedges were limited for %d s", limited)
			}
			if longestQuiet > 20 {
				t.Errorf("no hedge for %d s", longestQuiet)
			}
			if failed := append(got.failed, plain.failed...); tc.limit != nil && len(failed) > 0 {
				t.Errorf("calls failed where connections end gracefully: %v", failed)
			}
			// Whether a client that connects again meets the new server at once is chance; if not,
			// it tries again 100 ms later.
			if len(got.failed) > len(plain.failed)+len(plain.failed)/5+15*int(plain.conns.Connections) {
				t.Errorf("%d calls failed, without hedging %d", len(got.failed), len(plain.failed))
			}
		})
	}
}

// TestTail_NothingConfigured cuts the tail with no option set: real gRPC over memory in virtual
// time, and three backends with stragglers.
func TestTail_NothingConfigured(t *testing.T) {
	longtest.Simulation(t)
	bar := float64(longtest.Size(32, 30)) / 100 // of few calls the first ones, which are not hedged, are a greater part
	for _, streams := range []bool{false, true} {
		run := traffic{rate: 2000, callers: 100, streams: streams, lasts: time.Duration(longtest.Size(3, 10)) * time.Second,
			backends: 3}
		plain := run.run(t)
		run.hedged = true
		hedged := run.run(t)
		for _, q := range []float64{0.50, 0.90, 0.95, 0.99, 0.999} {
			p, h := quantile(plain.took, q), quantile(hedged.took, q)
			t.Logf("p%-4g plain %v, hedged %v", 100*q, p, h)
			if q >= 0.99 && float64(h) > bar*float64(p) {
				t.Errorf("streams=%v: p%g is %v, unhedged %v, want at most %v of that", streams, 100*q, h, p, bar)
			}
		}
		if extra := float64(hedged.stats.Hedges) / float64(len(hedged.took)); extra > 0.105 ||
			len(hedged.failed)+len(plain.failed) > 0 {
			t.Errorf("streams=%v: extra load %.2f%%, want at most 10.5%%; %v, %v", streams, 100*extra, plain.failed,
				hedged.failed)
		}
	}
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}
