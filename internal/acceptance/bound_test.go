package acceptance_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
	"github.com/grpchedge/hedge/stream"
)

// TestRule12_EveryAttemptBeyondTheFirst draws traffic, costs, faults and updates, and asks the servers what they got. In any
// interval the attempts beyond the first of each call are within the bound, whatever they were sent for.
func TestRule12_EveryAttemptBeyondTheFirst(t *testing.T) {
	longtest.Simulation(t)
	extra, poor := 0, int64(0)
	for seed := range uint64(longtest.Table(6, 50, 200)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWeather(t, seed)
			w.run(t, time.Minute)
			synctest.Wait()
			if over, at := w.book.over(w.share); over > 1e-6 {
				t.Errorf("seed %d: attempts beyond the first cost %v more than the bound at %v", seed, over, at)
			}
			extra += w.book.extra()
			poor += w.scheduler.Stats().PoorAnswers
		})
	}
	if extra < 100 || poor == 0 {
		t.Errorf("%d attempts beyond the first, %d poor answers: the test has come to nothing", extra, poor)
	}
}

// weather is a cluster of servers with faults, and a scheduler that is updated while it calls them.
type weather struct {
	r            *rand.Rand
	cluster      *testserver.Cluster
	scheduler    *hedge.Scheduler
	client       testpb.TestServiceClient
	share        float64 // the largest
	costs        []float64
	book         attemptBook
	distribution testserver.Distribution
	faults       []fault
}

// fault is what a script does while it is in force.
type fault func(a testserver.Attempt, usual time.Duration) testserver.Plan

func newWeather(t *testing.T, seed uint64) *weather {
	w := &weather{
		r: rand.New(rand.NewPCG(seed, 12)), distribution: testserver.Straggler(testserver.LogNormal(5*ms, 3*ms), 0.05, 10),
		book: attemptBook{began: time.Now(), first: map[uint64]bool{}},
	}
	w.share = []float64{0.02, 0.10, 0.5}[w.r.IntN(3)]
	w.costs = [][]float64{{1}, {1, 1, 1, 20}, {0.25, 3, math.NaN(), 0}}[w.r.IntN(3)]
	w.cluster = testserver.StartT(t, testserver.Config{Backends: 1 + w.r.IntN(4), InMemory: true, Seed: seed, CountsOnly: true})
	var err error
	if w.scheduler, err = hedge.New(w.options()...); err != nil {
		t.Fatal(err)
	}
	w.client = testpb.NewTestServiceClient(w.cluster.ClientT(t,
		grpc.WithChainUnaryInterceptor(interceptor.Unary(w.scheduler)), grpc.WithChainStreamInterceptor(stream.Interceptor(w.scheduler))))
	failing := func(code codes.Code, message string) fault {
		return func(a testserver.Attempt, usual time.Duration) testserver.Plan {
			if a.ID%3 > 0 {
				return testserver.Plan{Delay: usual}
			}
			return testserver.Plan{Delay: usual, Code: code, Message: message}
		}
	}
	w.faults = []fault{
		func(_ testserver.Attempt, usual time.Duration) testserver.Plan { return testserver.Plan{Delay: usual} },
		func(a testserver.Attempt, usual time.Duration) testserver.Plan {
			if a.Backend == 0 {
				usual = 5 * time.Second
			}
			return testserver.Plan{Delay: usual, PayloadBytes: int(a.ID % 2)}
		},
		func(testserver.Attempt, time.Duration) testserver.Plan {
			return testserver.Plan{Delay: 5 * time.Second}
		},
		func(_ testserver.Attempt, usual time.Duration) testserver.Plan {
			return testserver.Plan{Delay: 4 * usual}
		},
		failing(codes.Unavailable, "read tcp: connection reset by peer"),
		failing(codes.ResourceExhausted, "quota"),
		failing(codes.NotFound, ""),
	}
	return w
}

// options are of one configuration. Some change with each.
func (w *weather) options() []hedge.Option {
	r := w.r
	trigger := hedge.Auto()
	if r.IntN(2) == 0 {
		trigger = hedge.Fixed(time.Duration(r.IntN(20)) * ms)
	}
	opts := []hedge.Option{
		hedge.WithReadOnlyMethods("/*/*"), hedge.WithTrigger(trigger), hedge.WithMaxHedges(1 + r.IntN(4)),
		hedge.WithBudgetPercent(100 * w.share * []float64{1, 1, 1, 0.2, 0}[r.IntN(5)]),
		hedge.WithCost(func(_ context.Context, _ string, request any) float64 { return w.costOf(request.(*testpb.Request).Id) }),
		hedge.WithTrace(&hedge.Trace{CallDecided: func(c stats.CallDecided) {
			if c.Winner > 0 {
				w.book.add(event{wins: 1})
			}
		}}),
	}
	if r.IntN(2) == 0 {
		opts = append(opts, hedge.WithAnswer(func(_ context.Context, _ string, reply any, err error) bool {
			return err == nil && len(reply.(*testpb.Reply).GetPayload()) == 0
		}))
	}
	if r.IntN(3) == 0 {
		opts = append(opts, hedge.WithMethodOptions("/*/Unary", hedge.WithBudgetPercent(100*w.share/2)))
	}
	if r.IntN(3) == 0 {
		opts = append(opts, hedge.WithGuard(false))
	}
	return opts
}

func (w *weather) costOf(id uint64) float64 { return w.costs[id%uint64(len(w.costs))] }

// price is what an attempt of a call costs.
func (w *weather) price(id uint64) float64 {
	if cost := w.costOf(id); cost >= 0 {
		return cost
	}
	return 1
}

// run makes calls for so long.
func (w *weather) run(t *testing.T, lasts time.Duration) {
	rate, until, id := 0.0, time.Now().Add(lasts), uint64(0)
	var group sync.WaitGroup
	for next := time.Now(); time.Now().Before(until); {
		if !time.Now().Before(next) {
			next = time.Now().Add(time.Duration(w.r.ExpFloat64() * float64(3*time.Second)))
			rate = math.Pow(10, w.r.Float64()*2.3)
			w.change(t)
		}
		id++
		request := &testpb.Request{Id: id, Messages: 1}
		w.book.add(event{call: w.price(id)})
		group.Go(func() { w.call(request) })
		time.Sleep(time.Duration(min(w.r.ExpFloat64()/rate, 1) * float64(time.Second)))
	}
	group.Wait()
	time.Sleep(10 * time.Second) // losers that were left end
}

// change draws another fault and, at times, another configuration or a restart.
func (w *weather) change(t *testing.T) {
	now := w.faults[w.r.IntN(len(w.faults))]
	w.cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
		w.book.attempt(a.ID, w.price(a.ID))
		return now(a, a.Draw(w.distribution))
	})
	switch w.r.IntN(3) {
	case 0:
		if err := w.scheduler.Update(w.options()...); err != nil {
			t.Error(err)
		}
	case 1:
		if err := w.cluster.Restart(w.r.IntN(w.cluster.Backends())); err != nil {
			t.Error(err)
		}
	}
}

func (w *weather) call(request *testpb.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if request.Id%4 > 0 {
		_, _ = w.client.Unary(ctx, request)
		return
	}
	if s, err := w.client.ServerStream(ctx, request); err == nil {
		for err == nil {
			_, err = s.Recv()
		}
	}
}

// attemptBook is what happened when.
type attemptBook struct {
	mu     sync.Mutex
	began  time.Time
	first  map[uint64]bool // calls of which an attempt has come
	events []event
}

// event is a call that begins, an attempt beyond the first that arrives, or a hedge that wins.
type event struct {
	at    time.Duration
	call  float64 // what it costs
	extra float64
	wins  float64
}

func (b *attemptBook) add(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.at = time.Since(b.began)
	b.events = append(b.events, e)
}

func (b *attemptBook) attempt(id uint64, cost float64) {
	b.mu.Lock()
	beyond := b.first[id]
	b.first[id] = true
	b.mu.Unlock()
	if beyond {
		b.add(event{extra: cost})
	}
}

func (b *attemptBook) extra() (n int) {
	for _, e := range b.events {
		if e.extra > 0 {
			n++
		}
	}
	return n
}

// over is by how much the attempts beyond the first cost more than the bound, in the interval where that is most, and when it
// ends. The bound of an interval is the share of what its calls cost, the burst at its start, and the costliest of the attempts
// twice and once for each hedge that wins.
func (b *attemptBook) over(share float64) (over float64, at time.Duration) {
	costliest := 0.0
	for _, e := range b.events {
		costliest = max(costliest, e.extra)
	}
	f, least := 0.0, math.Inf(1)
	over = math.Inf(-1)
	for i := 0; i < len(b.events); {
		now := b.events[i].at
		least = min(least, f+burstBefore(b.events[:i], now, share))
		for ; i < len(b.events) && b.events[i].at == now; i++ { // of one instant all counts, or nothing
			e := b.events[i]
			f += e.extra - share*e.call - costliest*e.wins
		}
		if o := f - least - 2*costliest; o > over {
			over, at = o, now
		}
	}
	return over, at
}

// burstBefore is what the calls of two seconds earned, and the costliest call of a minute at least.
func burstBefore(events []event, now time.Duration, share float64) float64 {
	earned, costliest := 0.0, 1.0
	for _, e := range slices.Backward(events) {
		if e.at < now-time.Minute {
			break
		}
		if e.at >= now-2*time.Second {
			earned += share * e.call
		}
		costliest = max(costliest, e.call)
	}
	return max(earned, costliest)
}

// TestBook_DroppedHedges counts only the hedges that were sent.
func TestBook_DroppedHedges(t *testing.T) {
	const other = "/pkg.Svc/Other"
	for sent, want := range []stats.Counts{{Calls: 1}, {Calls: 1, Hedged: 1, Hedges: 1, PrimaryWins: 1}} {
		s := hedgetest.All(t, hedge.WithBudgetPercent(400))
		c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil, hedge.After(0))
		r := race.Report{Hedges: sent, Dropped: 1, DecidedAt: ms}
		r.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms}
		if sent > 0 {
			r.Attempts[1] = race.AttemptReport{CutShort: true}
		}
		for n := 1; n <= sent+1; n++ {
			for range 20 { // earns what the hedge costs
				hcall.Begin(registry.Of(s), t.Context(), target, other, nil, hedge.After(0))
			}
			if admitted, _ := hedgetest.Admit(&c, n); !admitted {
				t.Fatal("the budget does not pay")
			}
		}
		c.Book(&r)
		want.Calls += int64(20 * (sent + 1))
		if got := s.Stats(); got != want {
			t.Errorf("%d sent: %+v, want %+v", sent, got, want)
		}
	}
}

// TestBook_DroppedHedgesArePaidBack drops hedges, before the call's next hedge is due or at its end.
func TestBook_DroppedHedgesArePaidBack(t *testing.T) {
	tokens := func(s *hedge.Scheduler) float64 { return s.Targets()[0].Tokens }
	s := hedgetest.All(t)
	c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil, hedge.After(0))
	var r race.Report
	for dropped := range 3 {
		r.Dropped = dropped
		if c.Admit(1, 1, &r).Kind != race.Admitted {
			t.Fatalf("refused after %d hedges that were dropped", dropped)
		}
		if got := tokens(s); got >= 1 {
			t.Fatalf("%v tokens after a hedge was paid for", got)
		}
	}
	r.Dropped++
	r.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms}
	c.Book(&r)
	if got := tokens(s); got != 1 {
		t.Errorf("%v tokens after the last one was dropped too, want 1", got)
	}
	if got, want := s.Stats(), (stats.Counts{Calls: 1}); got.Hedges != want.Hedges {
		t.Errorf("%d hedges, want none", got.Hedges)
	}
}

// TestBook_FailuresCountOnce has the throttle know of a failure when the next hedge is due, and once.
func TestBook_FailuresCountOnce(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	failed := race.AttemptReport{HasEnded: true, EndedAt: ms, End: race.NonFatal, Err: unavailable, Pushback: race.PushbackAfter}
	for name, tc := range map[string]struct {
		report race.Report
		want   float64
		pushed int64
	}{
		"a failure":                        {race.Report{Err: unavailable}, 9, 1},
		"one that came as the caller left": {race.Report{Err: unavailable, CallerGone: race.CallerCancelled, GoneAt: ms}, 10, 0},
		"one before the caller left":       {race.Report{Err: unavailable, CallerGone: race.CallerCancelled, GoneAt: 2 * ms}, 9, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := hedgetest.All(t, hedgetest.Throttle(10, 0.1))
			c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil, hedge.After(0))
			tc.report.Attempts[0] = failed
			c.Admit(1, 1, &tc.report)
			if got := s.Targets()[0].ThrottleTokens; got != tc.want {
				t.Errorf("%v tokens when a hedge is due, want %v", got, tc.want)
			}
			c.Book(&tc.report)
			if got := s.Targets()[0]; got.ThrottleTokens != tc.want || got.PushedBack != tc.pushed {
				t.Errorf("%v tokens at the end, %d pushed back; want %v, %d", got.ThrottleTokens, got.PushedBack, tc.want, tc.pushed)
			}
		})
	}
}
