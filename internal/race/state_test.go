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

// delay is the delay of the schedules in instants. Abstract time advances one instant at a time, so
// there is an instant before a hedge is due, one at which it is due, and one before the next is.
const delay = 2

// timer is the runner's timer, as the state has set it.
type timer struct {
	armed bool
	at    time.Duration
}

func (t *timer) set(a race.Actions) {
	switch {
	case a.Arm:
		*t = timer{true, a.At}
	case a.Disarm:
		*t = timer{}
	}
}

// node is a state of the search: the race's, its surroundings, and the facts of its history that matter
// to the rules. The future of a node depends on nothing else, so each node is searched once.
type node struct {
	state     race.State
	now       time.Duration
	timer     timer
	late      bool // a timer fired after it was stopped or reset
	committed bool
	left      bool // the caller has
	facts     facts
}

// finished reports whether the schedule is complete.
func (n *node) finished() bool {
	return n.facts.decided && n.facts.inFlight == 0 && !n.facts.waiting
}

// search goes through all schedules of one variant of the rules.
type search struct {
	rules    race.Rules
	firstDue time.Duration
	horizon  time.Duration // the last instant at which anything happens
	timely   bool          // leave out late timers
	few      bool          // leave out late timers, commits and panics
	fails    bool          // failures may make the next hedge due
	history  []occurrence
	seen     map[node]uint64 // how many schedules follow
	steps    uint64
	broken   string // the first rule broken, with the schedule that breaks it
}

func (s *search) so() history { return history{s.rules, s.firstDue, s.history} }

// run searches, and returns how many schedules there are.
func (s *search) run() uint64 {
	s.seen = map[node]uint64{}
	n, a := s.begin()
	n.state = race.Key(n.state)
	if want := s.rules.MaxHedges > 0; n.timer.armed != want || want && n.timer.at != s.firstDue {
		s.broken = fmt.Sprintf("rule 10: the race starts with %+v", a)
	}
	return s.from(n)
}

// begin returns the node at which the race begins.
func (s *search) begin() (node, race.Actions) {
	state, a := race.NewState(race.Plan{Rules: s.rules, Due: s.firstDue})
	n := node{state: state, facts: begins(s.firstDue)}
	n.timer.set(a)
	return n, a
}

// from returns how many schedules follow n.
func (s *search) from(n node) (schedules uint64) {
	if s.broken != "" {
		return 0
	}
	if n.finished() {
		return s.finish(n)
	}
	if count, ok := s.seen[n]; ok {
		return count
	}
	if n.now < s.horizon && !n.facts.decided && (n.timer.armed || n.facts.waiting) {
		next := n
		next.now++
		schedules += s.from(next)
	}
	s.outOfPlace(n)
	s.events(n, func(e race.Event) { schedules += s.after(n, e) })
	s.seen[n] = schedules
	return schedules
}

func (s *search) finish(n node) uint64 {
	switch {
	case !n.facts.delivered:
		s.broken = fmt.Sprintf("rule 1: the race is over and nothing was delivered\n%v", s.so())
	case n.timer.armed:
		s.broken = fmt.Sprintf("rule 8: the race is over and the timer armed\n%v", s.so())
	}
	return 1
}

// after returns how many schedules follow n with e as the next event. What the state only records is
// something else at each step. So if Step read it, its actions would not always be what the rules want.
func (s *search) after(n node, e race.Event) uint64 {
	n.state = race.Scramble(n.state, s.steps)
	n = s.step(n, e)
	n.state = race.Key(n.state)
	schedules := s.from(n)
	s.history = s.history[:len(s.history)-1]
	return schedules
}

// outOfPlace checks that events which cannot happen now change nothing.
func (s *search) outOfPlace(n node) {
	for _, e := range []race.Event{
		{Kind: race.Admitted}, {Kind: race.HeldBack, Until: n.now + 1}, {Kind: race.Refused},
		{Kind: race.NotReplayable},
		{Kind: race.Ended, Attempt: race.MaxAttempts - 1}, {Kind: race.Committed},
	} {
		switch {
		case n.facts.waiting && e.Kind >= race.Admitted && e.Kind <= race.NotReplayable,
			e.Kind == race.Ended && n.facts.inFlight.Has(int(e.Attempt)),
			e.Kind == race.Committed && n.facts.inFlight.Has(0) && !n.facts.decided:
			continue
		}
		state := n.state
		if a := state.Step(e, n.now); state != n.state || a != (race.Actions{}) {
			s.broken = fmt.Sprintf("rule 1: out of place, %s changed something: %+v\n%v", describe(e), a, s.so())
		}
	}
}

// step has e happen at n, adds it to the history, and checks the rules.
func (s *search) step(n node, e race.Event) node {
	before, was := n.facts, n.state
	switch {
	case e.Kind == race.Due && n.timer.armed && n.now >= n.timer.at:
		n.timer = timer{}
	case e.Kind == race.Due:
		n.late = true
	}
	n.committed = n.committed || e.Kind == race.Committed
	n.left = n.left || e.Kind == race.CallerGone
	o := occurrence{e, n.now, n.state.Step(e, n.now)}
	s.steps++
	n.timer.set(o.a)
	s.history = append(s.history, o)
	n.facts = before.then(s.rules, o)
	if broken := judge(s.rules, before, n.facts, o, n.timer); broken != "" && s.broken == "" {
		s.broken = fmt.Sprintf("%s\n%v", broken, s.so())
	}
	if hope := n.facts.inFlight == 0 && !n.facts.hopes; !n.facts.decided && n.state.AllFailed() != hope {
		s.broken = fmt.Sprintf("all attempts have failed: want %t\n%v", hope, s.so())
	}
	if before.delivered && (n.state != was || o.a != race.Actions{}) {
		s.broken = fmt.Sprintf("rule 1: something changed after the delivery\n%v", s.so())
	}
	return n
}

// events yields every event that can happen next.
func (s *search) events(n node, yield func(race.Event)) {
	if n.timer.armed && n.now >= n.timer.at {
		yield(race.Event{Kind: race.Due})
	} else if !n.late && !s.few && !s.timely {
		yield(race.Event{Kind: race.Due})
	}
	if n.facts.waiting {
		yield(race.Event{Kind: race.Admitted, Paid: true})
		yield(race.Event{Kind: race.HeldBack, Until: n.now + 1})
		if s.fails {
			yield(race.Event{Kind: race.HeldBack, Until: n.now + 1, Waits: true})
		}
		yield(race.Event{Kind: race.Refused})
		for _, paid := range []bool{false, true} {
			yield(race.Event{Kind: race.NotReplayable, Paid: paid})
			if !s.few {
				yield(race.Event{Kind: race.Ended, Attempt: n.facts.sent + 1, End: race.Panicked, Paid: paid})
			}
		}
	}
	for i := range uint8(race.MaxAttempts) {
		if n.facts.inFlight.Has(int(i)) {
			s.ends(n, i, yield)
		}
	}
	if n.facts.inFlight.Has(0) && !n.committed && !s.few {
		yield(race.Event{Kind: race.Committed})
	}
	if !n.left {
		yield(race.Event{Kind: race.CallerGone})
	}
}

// ends yields every way in which attempt i can end.
func (s *search) ends(n node, i uint8, yield func(race.Event)) {
	s.rejectedEnds(n, i, yield)
	for _, end := range []race.EndKind{race.OK, race.Final, race.NonFatal, race.Panicked, race.RejectedStatus} {
		if s.few && end == race.Panicked || end == race.RejectedStatus &&
			!(s.rules.Judged && (i == 0 || s.rules.HedgeFinal)) {
			continue
		}
		yield(race.Event{Kind: race.Ended, Attempt: i, End: end})
		if s.fails && end == race.NonFatal {
			over := race.Event{Kind: race.Ended, Attempt: i, End: end, Failover: true}
			yield(over)
			over.Pushback = race.PushbackAfter
			yield(over)
			over.Cut, over.Pushback = true, race.NoPushback
			yield(over)
		}
		if (end == race.NonFatal || end == race.RejectedStatus) && !n.facts.decided {
			yield(race.Event{Kind: race.Ended, Attempt: i, End: end, Open: true})
		}
		if end == race.NonFatal && !n.facts.decided {
			yield(race.Event{Kind: race.Ended, Attempt: i, End: end, Pushback: race.PushbackAfter})
		}
	}
}

// rejectedEnds yields the ways in which attempt i can end with RejectedReply.
func (s *search) rejectedEnds(n node, i uint8, yield func(race.Event)) {
	if !s.rules.Judged {
		return
	}
	yield(race.Event{Kind: race.Ended, Attempt: i, End: race.RejectedReply, Open: true})
	if !s.few && !n.facts.decided {
		yield(race.Event{Kind: race.Ended, Attempt: i, End: race.RejectedReply})
	}
}

// variants is every combination of the rules for a number of hedges. With a delay of 0, two hedges
// and more need HEDGE_TESTS=long.
func variants(hedges uint8) (all []race.Rules) {
	for bits := range 1 << 4 {
		r := race.Rules{
			MaxHedges:  hedges,
			HedgeFinal: bits&1 != 0,
			CountsAll:  bits&2 != 0,
			Judged:     bits&4 != 0,
		}
		if bits&8 != 0 {
			r.Delay = delay
		}
		if hedges < 2 || longtest.Long() || r.Delay > 0 {
			all = append(all, r)
		}
	}
	return all
}

// TestState_EveryInterleaving goes through every schedule of a primary and up to two hedges, for
// every variant of the rules, and checks the rules on each step of each. Without HEDGE_TESTS=long,
// two hedges have fewer variants and no timers that fire late. Others have fewer kinds of events,
// and less time.
func TestState_EveryInterleaving(t *testing.T) {
	longtest.Computation(t)
	for _, of := range []struct {
		name   string
		hedges []uint8
		search func(r race.Rules) *search // nil: leave this variant out
	}{
		{"up to two hedges", []uint8{0, 1, 2}, func(r race.Rules) *search {
			return &search{rules: r, firstDue: r.Delay, horizon: 2*delay + 1, timely: r.MaxHedges == 2 && !longtest.Long()}
		}},
		{"failures send the next hedge", []uint8{0, 1, 2}, func(r race.Rules) *search {
			return &search{rules: r, firstDue: r.Delay, horizon: delay + 1, few: r.MaxHedges == 2, fails: true}
		}},
		{"three hedges", []uint8{3}, func(r race.Rules) *search {
			// so that the third is due in time
			if r.Delay = min(r.Delay, 1); !longtest.Long() && r.HedgeFinal != r.CountsAll {
				return nil
			}
			return &search{rules: r, firstDue: r.Delay, horizon: 3, few: true}
		}},
		{"a reader that comes late", []uint8{1}, func(r race.Rules) *search {
			return &search{rules: r, firstDue: r.Delay + 1, horizon: 2*delay + 1}
		}},
	} {
		t.Run(of.name, func(t *testing.T) {
			var variantsDone, states int
			var steps, schedules uint64
			for _, hedges := range of.hedges {
				for _, r := range variants(hedges) {
					s := of.search(r)
					if s == nil {
						continue
					}
					if schedules += s.run(); s.broken != "" {
						t.Fatal(s.broken)
					}
					variantsDone, states, steps = variantsDone+1, states+len(s.seen), steps+s.steps
				}
			}
			t.Logf("%d variants: %d schedules, %d states, %d steps", variantsDone, schedules, states, steps)
		})
	}
}

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
