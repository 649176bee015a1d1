package race_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

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

// reports are the report of a schedule that its list of events implies, and the one that the runner
// makes.
func reports(h history) (r, recorded race.Report) {
	f := begins(h.firstDue)
	r.Attempts[0].CutShort = true
	for _, o := range h.list {
		if o.a.Start > 0 {
			r.Hedges++
			r.Attempts[o.a.Start] = race.AttemptReport{SentAt: o.at, CutShort: true}
			if f.mending {
				r.Failovers++
			}
		}
		r.NotReplayable = r.NotReplayable || o.e.Kind == race.NotReplayable
		if o.e.Kind == race.CallerGone && !f.decided {
			r.GoneAt, r.CallerGone, r.GaveUp = o.at, true, errorOf(o) == context.Canceled
		}
		if f.decided && o.e.End == race.Panicked && o.e.Attempt != f.winner {
			r.LoserPanics++
		}
		if a := &r.Attempts[o.e.Attempt]; o.e.Kind == race.Ended && !f.panicsUnsent(o.e) {
			a.EndedAt, a.Event, a.Err = o.at, o.e, errorOf(o)
			if o.isRejected() {
				r.Rejected++
			}
			if a.CutShort = a.CutShort && f.decided; f.decided {
				a.Pushback = race.NoPushback
			}
		}
		recorded.Note(f.decided, o.e, o.a, errorOf(o), o.at)
		if f = f.then(h.rules, o); o.a.Decided {
			r.Winner, r.DecidedAt, r.Committed = int(f.winner), o.at, o.e.Kind == race.Committed
		}
		if o.a.Deliver {
			r.DeliveredAt, r.Panicked = o.at, o.a.Panic
			break
		}
	}
	for _, a := range r.Attempts {
		if a.TurnedAway() {
			r.TurnedAway++
		}
	}
	r.Attempts[r.Winner].CutShort = false
	r.Err = r.Attempts[r.Winner].Err
	return r, recorded
}

// errorOf is the error of an end, or of the caller's context: one in two callers has a deadline.
func errorOf(o occurrence) error {
	e := o.e
	if e.Kind == race.CallerGone {
		return []error{context.Canceled, context.DeadlineExceeded}[o.at%2]
	}
	if e.End == race.Final || e.End == race.NonFatal || e.End == race.RejectedStatus {
		return errAttempt[e.Attempt]
	}
	return nil
}

// TestReport checks the report of random schedules of up to four hedges, and the rules with them.
func TestReport(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	for range longtest.Size(1_000, 4_000) {
		all := variants(uint8(draw.IntN(race.MaxAttempts)))
		s := search{rules: all[draw.IntN(len(all))], horizon: 6 * delay, fails: draw.IntN(2) > 0}
		s.firstDue = s.rules.Delay
		s.walk(draw)
		if s.broken != "" {
			t.Fatalf("seed %d: %s", seed, s.broken)
		}
		want, got := reports(s.so())
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(race.Report{}), cmpopts.EquateErrors()); diff != "" {
			t.Fatalf("seed %d: report differs (-want +got):\n%s\n%v", seed, diff, s.so())
		}
		for n, a := range got.Attempts { // it answered, or was cut short, or neither
			answered := a.Kind == race.Ended && (a.End == race.OK || a.End == race.RejectedReply)
			if _, cut := got.Unanswered(n); cut && (answered || n == got.Winner) || got.FirstNotTurnedAway() > got.Hedges {
				t.Fatalf("seed %d: attempt %d of %+v", seed, n, got)
			}
		}
	}
}

// walk plays one schedule at random.
func (s *search) walk(draw *rand.Rand) {
	m, a := race.NewMachine(s.rules, s.firstDue)
	n := node{m: m, facts: begins(s.firstDue)}
	n.timer.set(a)
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
		n = s.step(n, next[draw.IntN(len(next))])
	}
}
