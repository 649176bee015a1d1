package hedge_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// Every call is slow, so that each wants its hedges, and shares move up and down a thousand times a second: the target's, and those of
// methods with a budget of their own. By the server's own counts hedges stay, in every interval, within the largest share of the calls in
// it, the burst at its start, and the two hedges that savings pay.
func TestRule12_SharesThatMove(t *testing.T) {
	const callers = 64
	rounds := longtest.Size(10, 200)
	synctest.Test(t, func(t *testing.T) {
		slow := &slowServer{sent: map[string][]time.Time{}}
		s := hedgetest.All(t, moved(0)...)
		conn := testserver.ServiceT(t, slow, hedgetest.Interceptors(s)...)
		client := testpb.NewTestServiceClient(conn)
		var over atomic.Bool
		var updater, group sync.WaitGroup
		updater.Go(func() {
			for i := 1; !over.Load(); i++ {
				if err := s.Update(append(moved(i), hedge.WithAllMethods())...); err != nil {
					t.Error(err)
				}
				time.Sleep(ms)
			}
		})
		var mu sync.Mutex
		begun := map[string][]time.Time{}
		for caller := range callers {
			group.Go(func() {
				r := rand.New(rand.NewPCG(uint64(caller), 9))
				for range rounds {
					time.Sleep(time.Duration(r.ExpFloat64() * float64(100*ms)))
					w := []way{{unary, unaryWay(client.Unary)}, {ruled, unaryWay(client.UnaryIdempotent)}, {halted, unaryWay(client.UnaryNoSideEffects)}}[r.IntN(3)]
					mu.Lock()
					begun[w.method] = append(begun[w.method], time.Now())
					mu.Unlock()
					if err := w.call(context.Background(), &testpb.Request{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		over.Store(true)
		updater.Wait()
		conn.Close()
		synctest.Wait()
		slow.mu.Lock()
		defer slow.mu.Unlock()
		checkEveryInterval(t, "the target", targetMost, slices.Concat(begun[unary], begun[ruled], begun[halted]), slices.Concat(slow.sent[unary], slow.sent[ruled], slow.sent[halted]))
		checkEveryInterval(t, "a method", ownMost, begun[ruled], slow.sent[ruled])
		checkEveryInterval(t, "another method", otherMost, begun[halted], slow.sent[halted])
	})
}

const targetMost, ownMost, otherMost = 0.20, 0.05, 0.08

// moved are the options after i updates.
func moved(i int) []hedge.Option {
	percent := hedge.WithBudgetPercent
	opts := []hedge.Option{
		hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(3),
		percent(100 * []float64{targetMost, 0.05, targetMost - 1e-9, 0.13}[i%4]),
		hedge.WithMethodOptions(halted, percent(100*[]float64{otherMost, 0.01, 0, otherMost / 3}[i/3%4])),
	}
	if i%5 > 0 { // it has none of its own meanwhile, and only then more than its share
		return append(opts, hedge.WithMethodOptions(ruled, percent(100*[]float64{ownMost, 0.02}[i%2])))
	}
	return append(opts, hedge.WithMethodOptions(ruled, hedge.WithOff()))
}

// checkEveryInterval checks that in each interval hedges ≤ share·calls + burst + 2. The burst is what two seconds of calls earn, and one
// at least.
func checkEveryInterval(t *testing.T, whose string, share float64, calls, hedges []time.Time) {
	t.Helper()
	slices.SortFunc(calls, time.Time.Compare)
	slices.SortFunc(hedges, time.Time.Compare)
	least, from, begun := math.Inf(1), 0, 0
	for n, at := range hedges {
		for begun < len(calls) && !calls[begun].After(at) { // an interval begins just before a call, or
			for calls[from].Before(calls[begun].Add(-2 * time.Second)) {
				from++
			}
			burst := max(1, share*float64(begun-from))
			least = min(least, burst+float64(n)-share*float64(begun))
			begun++
		}
		if over := float64(n+1) - share*float64(begun) - least - 2; over > 1e-6 {
			t.Fatalf("%s: %.2f hedges too many, at hedge %d and call %d", whose, over, n+1, begun)
		}
	}
	t.Logf("%s: %d hedges of %d calls, %.1f%%; the largest share is %v%%", whose, len(hedges), len(calls), 100*float64(len(hedges))/float64(len(calls)), 100*share)
	if float64(len(hedges)) < 0.1*share*float64(len(calls)) {
		t.Errorf("%s: the test has come to nothing", whose)
	}
}

// slowServer is one whose attempts all take as long, so that hedges never win.
type slowServer struct {
	testpb.UnimplementedTestServiceServer
	mu   sync.Mutex
	sent map[string][]time.Time // when hedges of a method came
}

func (s *slowServer) serve(ctx context.Context, method string, in *testpb.Request) (*testpb.Reply, error) {
	if hedge.PreviousAttempts(ctx) > 0 {
		s.mu.Lock()
		s.sent[method] = append(s.sent[method], time.Now())
		s.mu.Unlock()
	}
	select {
	case <-time.After(200 * ms):
		return &testpb.Reply{Id: in.Id}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (s *slowServer) Unary(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	return s.serve(ctx, unary, in)
}

func (s *slowServer) UnaryIdempotent(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	return s.serve(ctx, ruled, in)
}

func (s *slowServer) UnaryNoSideEffects(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	return s.serve(ctx, halted, in)
}
