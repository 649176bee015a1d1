package acceptance_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule12_EveryAttemptBeyondTheFirst draws traffic, costs, faults and updates, and counts
// attempts at the servers. In any interval the attempts beyond the first of each call are within
// the bound.
func TestRule12_EveryAttemptBeyondTheFirst(t *testing.T) {
	longtest.Simulation(t)
	extra, rejected := 0, int64(0)
	for seed := range uint64(longtest.Table(6, 50, 200)) {
		synctest.Test(t, func(t *testing.T) {
			w := drawWorld(seed)
			r := rand.New(rand.NewPCG(seed, 12))
			w.rate, w.pool, w.limit, w.faults, w.settings.rejected = math.Pow(10, 2.3*r.Float64()), 1, nil, nil, seed%2 == 0
			for from := time.Duration(0); from < time.Minute; from += time.Duration(r.ExpFloat64() * float64(3*time.Second)) {
				f := w.drawFault(r, "words", "not found", "crash", "drain", "stall", "all slow", "rejected", "update")
				f.from, f.until = from, from+time.Duration(r.ExpFloat64()*float64(5*time.Second))
				w.faults = append(w.faults, f)
			}
			c := w.start(t, w.hedging(t))
			for second := range 60 {
				c.until(time.Duration(second+1) * time.Second)
				for _, m := range w.scheduler.Methods() {
					w.book.delay = max(w.book.delay, m.Delay)
				}
			}
			c.end(t)
			if over, at := w.book.over(w.share, w.scheduler.Stats().Repeated); over > 1e-6 {
				t.Errorf("seed %d: attempts beyond the first cost %v more than the bound at %v\n%v", seed, over, at, w)
			}
			extra += w.book.extra()
			rejected += w.scheduler.Stats().Rejected
		})
	}
	if extra < 100 || rejected == 0 {
		t.Errorf("%d attempts beyond the first, %d rejected answers: the test has come to nothing", extra, rejected)
	}
}

// attemptBook is what happened when.
type attemptBook struct {
	mu     sync.Mutex
	began  time.Time
	first  map[uint64]bool // calls with an attempt at a server
	events []event
	delay  time.Duration // the longest
}

// event is a call that begins, an attempt beyond the first that arrives, or a hedge that wins.
type event struct {
	at    time.Duration
	call  float64 // its cost
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

// over is by how much the attempts beyond the first cost more than the bound, in the interval where
// that is most, and when it ends. The bound of an interval is the share of what its calls cost, the
// burst at its start, and the costliest of the attempts twice and once for each hedge that wins. If
// calls were repeated, the budget may have owed that for them, but no more than a burst.
func (b *attemptBook) over(share float64, repeated int64) (over float64, at time.Duration) {
	costliest := 0.0
	for _, e := range b.events {
		costliest = max(costliest, e.extra)
	}
	f, least, debt := 0.0, math.Inf(1), 0.0
	over = math.Inf(-1)
	for i := 0; i < len(b.events); {
		now := b.events[i].at
		burst := burstBefore(b.events[:i], now, share, max(2*time.Second, 5*b.delay))
		least, debt = min(least, f+burst), min(max(debt, burst), float64(repeated)*costliest)
		for ; i < len(b.events) && b.events[i].at == now; i++ { // of one instant all counts, or nothing
			e := b.events[i]
			f += e.extra - share*e.call - costliest*e.wins
		}
		if o := f - least - 2*costliest - debt; o > over {
			over, at = o, now
		}
	}
	return over, at
}

// burstBefore is the budget of the calls of a time, and at least the costliest call of a minute.
func burstBefore(events []event, now time.Duration, share float64, life time.Duration) float64 {
	earned, costliest := 0.0, 1.0
	for _, e := range slices.Backward(events) {
		if e.at < now-time.Minute {
			break
		}
		if e.at >= now-life {
			earned += share * e.call
		}
		costliest = max(costliest, e.call)
	}
	return max(earned, costliest)
}

// TestBook_DroppedHedgesArePaidBack drops hedges, before the call's next hedge is due or at its
// end.
func TestBook_DroppedHedgesArePaidBack(t *testing.T) {
	s := hedgetest.All(t)
	c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil, hedge.After(0))
	var r race.Report
	for ; r.Dropped < 3; r.Dropped++ {
		admitted := c.Admit(1, 1, &r).Kind == race.Admitted
		if tokens := s.Methods()[0].Tokens; !admitted || tokens >= 1 {
			t.Fatalf("%d hedges were dropped; admitted: %t, %v tokens left", r.Dropped, admitted, tokens)
		}
	}
	r.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms}
	c.Book(&r)
	if got := s.Methods()[0]; got.Tokens != 1 || got.Hedges != 0 {
		t.Errorf("%v tokens and %d hedges after the last one was dropped too, want 1 and none", got.Tokens, got.Hedges)
	}
}

// TestBook_FailuresCountOnce has the throttle know of a failure when the next hedge is due, and
// once.
func TestBook_FailuresCountOnce(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	for name, tc := range map[string]struct {
		report race.Report
		want   float64
		pushed int64
	}{
		"a failure":                        {race.Report{}, 9, 1},
		"one that came as the caller left": {race.Report{CallerGone: true, GaveUp: true, GoneAt: ms}, 10, 0},
		"one before the caller left":       {race.Report{CallerGone: true, GaveUp: true, GoneAt: 2 * ms}, 9, 1},
	} {
		s := hedgetest.All(t, hedgetest.Throttle(10, 0.1))
		c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil, hedge.After(0))
		tc.report.Err = unavailable
		tc.report.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms, End: race.NonFatal, Err: unavailable,
			Pushback: race.PushbackAfter}
		c.Admit(1, 1, &tc.report)
		due := s.Methods()[0].ThrottleTokens
		c.Book(&tc.report)
		if got := s.Methods()[0]; due != tc.want || got.ThrottleTokens != tc.want || got.PushedBack != tc.pushed {
			t.Errorf("%s: %v tokens when a hedge is due, and %v at the end; %d pushed back; want %v, %d", name, due,
				got.ThrottleTokens, got.PushedBack, tc.want, tc.pushed)
		}
	}
}
