package race_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/race"
)

var errAttempt = [race.MaxAttempts]error{}

func init() {
	for n := range errAttempt {
		errAttempt[n] = fmt.Errorf("error of attempt %d", n)
	}
}

// recorded returns the record of a schedule that its list of events implies.
func recorded(h history) (r race.State) {
	f := begins(h.firstDue)
	r.Attempts[0].CutShort = true
	for _, o := range h.list {
		if n := o.a.Start; n > 0 {
			r.Hedges++
			r.Attempts[n].SentAt, r.Attempts[n].CutShort, r.Attempts[n].Cause = o.at, true, f.cause
			if f.cause >= race.Failed {
				r.Failovers++
			}
		}
		r.NotReplayable = r.NotReplayable || o.e.Kind == race.NotReplayable
		if o.e.Kind == race.CallerGone && !f.decided {
			r.GoneAt, r.CallerGone, r.GaveUp = o.at, true, o.e.Err == context.Canceled
		}
		if f.decided && o.e.End == race.Panicked && o.e.Attempt != f.winner {
			r.LoserPanics++
		}
		if a := &r.Attempts[o.e.Attempt]; o.e.Kind == race.Ended {
			a.EndedAt, a.Event = o.at, o.e
			if o.isRejected() {
				r.Rejected++
			}
			if a.CutShort = a.CutShort && f.decided; f.decided {
				a.Pushback = race.NoPushback
			}
			if a.TurnedAway() {
				r.TurnedAway++
			}
		}
		if f = f.then(h.rules, o); o.a.Decided {
			r.Winner, r.DecidedAt, r.Committed = int(f.winner), o.at, o.e.Kind == race.Committed
		}
		if o.a.Deliver {
			r.DeliveredAt, r.Panicked = o.at, o.a.Panic
			break
		}
	}
	r.Attempts[r.Winner].CutShort = false
	r.Err = r.Attempts[r.Winner].Err
	return r
}

// errorOf is the error of an end, or of the caller's context: one in two callers has a deadline.
func errorOf(e race.Event, now time.Duration) error {
	if e.Kind == race.CallerGone {
		return []error{context.Canceled, context.DeadlineExceeded}[now%2]
	}
	if e.End == race.Final || e.End == race.NonFatal || e.End == race.RejectedStatus {
		return errAttempt[e.Attempt]
	}
	return nil
}

// TestState_Record checks the record of random schedules of up to four hedges, and the rules with them.
func TestState_Record(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	for range longtest.Size(1_000, 4_000) {
		all := variants(uint8(draw.IntN(race.MaxAttempts)))
		s := search{rules: all[draw.IntN(len(all))], horizon: 6 * delay, fails: draw.IntN(2) > 0}
		s.firstDue = s.rules.Delay
		got := s.walk(draw)
		if s.broken != "" {
			t.Fatalf("seed %d: %s", seed, s.broken)
		}
		diff := cmp.Diff(recorded(s.so()), got, cmpopts.IgnoreUnexported(got), cmpopts.IgnoreFields(got, "Due", "Cause"),
			cmpopts.EquateErrors())
		if diff != "" {
			t.Fatalf("seed %d: the record differs (-want +got):\n%s\n%v", seed, diff, s.so())
		}
		for n, a := range got.Attempts {
			if a.CutShort && n == got.Winner {
				t.Fatalf("seed %d: attempt %d of %+v", seed, n, got)
			}
		}
	}
}

// walk plays one schedule at random, and returns the final state.
func (s *search) walk(draw *rand.Rand) race.State {
	n, _ := s.begin()
	for !n.finished() && s.broken == "" {
		// Hedges are worth looking at, so that what leads to one comes more often than what ends
		// the race.
		var next, towards []race.Event
		s.events(n, func(e race.Event) {
			if next = append(next, e); e.Kind == race.Due || e.Kind == race.Admitted {
				towards = append(towards, e)
			}
		})
		switch {
		case len(towards) > 0 && draw.IntN(4) > 0:
			next = towards
		case n.now < s.horizon && draw.IntN(4) > 0:
			n.now++
			continue
		}
		e := next[draw.IntN(len(next))]
		e.Err = errorOf(e, n.now)
		n = s.step(n, e)
	}
	return n.state
}
