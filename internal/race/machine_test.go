package race_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

var long = flag.Bool("hedge.long", false, "search all variants of the race's rules, and run the mutation test")

// delay is that of the schedules, in instants: abstract time goes by in steps of one. So there is an instant before a hedge
// is due, the one at which it is, and one after, before the next is due.
const delay = 2

// timer is the runner's timer, as the machine has set it.
type timer struct {
	armed bool
	at    time.Duration
}

func (t *timer) set(a race.Actions) {
	switch a.Timer {
	case race.ArmTimer:
		*t = timer{true, a.At}
	case race.StopTimer:
		*t = timer{}
	}
}

// node is a state of the search: the machine, what surrounds it, and what the rules know of its history. What can follow
// a node, and what the rules say to it, depends on nothing else; so each node is searched once.
type node struct {
	m         race.Machine
	now       time.Duration
	timer     timer
	late      bool // a timer that was stopped, or set anew, has fired all the same
	committed bool
	left      bool // the caller has
	facts     facts
}

// finished reports whether nothing is left to happen.
func (n *node) finished() bool {
	return n.facts.decided && n.facts.inFlight == 0 && n.facts.waiting == 0
}

// search goes through all schedules of one variant of the rules.
type search struct {
	rules     race.Rules
	firstDue  time.Duration
	horizon   time.Duration // the last instant at which anything happens
	plain     bool          // search nodes as often as schedules lead there
	history   []occurrence
	seen      map[node]uint64 // how many schedules follow
	steps     uint64
	broken    string // the first rule broken, with the schedule that breaks it
	finishing func(history)
}

func (s *search) so() history { return history{s.rules, s.firstDue, s.history} }

// run searches, and returns how many schedules there are.
func (s *search) run() uint64 {
	s.seen = map[node]uint64{}
	m, a := race.NewMachine(s.rules, s.firstDue)
	n := node{m: m, facts: s.so().facts(facts{})}
	n.timer.set(a)
	if want := s.rules.MaxHedges > 0; n.timer.armed != want || want && n.timer.at != s.firstDue {
		s.broken = fmt.Sprintf("rule 10: the race starts with %+v", a)
	}
	return s.from(n)
}

// from returns how many schedules follow n.
func (s *search) from(n node) (schedules uint64) {
	if s.broken != "" {
		return 0
	}
	if n.finished() {
		return s.finish(n)
	}
	if count, ok := s.seen[n]; ok && !s.plain {
		return count
	}
	if n.now < s.horizon && !n.facts.decided && (n.timer.armed || n.facts.waiting != 0) {
		next := n
		next.now++
		schedules += s.from(next)
	}
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
	case s.finishing != nil:
		s.finishing(s.so())
	}
	return 1
}

// after returns how many schedules follow n with e as the next event.
func (s *search) after(n node, e race.Event) uint64 {
	before := n
	switch {
	case e.Kind == race.Due && n.timer.armed && n.now >= n.timer.at:
		n.timer = timer{}
	case e.Kind == race.Due:
		n.late = true
	}
	n.committed = n.committed || e.Kind == race.Committed
	n.left = n.left || e.Kind == race.Cancelled || e.Kind == race.DeadlinePassed
	o := occurrence{e, n.now, n.m.Step(e, n.now)}
	s.steps++
	n.timer.set(o.a)
	s.history = append(s.history, o)
	n.facts = s.so().facts(before.facts)
	var schedules uint64
	if broken := judge(s.rules, before.facts, n.facts, o, n.timer); broken != "" && s.broken == "" {
		s.broken = fmt.Sprintf("%s\n%v", broken, s.so())
	} else {
		schedules = s.from(n)
	}
	s.history = s.history[:len(s.history)-1]
	return schedules
}

// events yields every event that can happen next.
func (s *search) events(n node, yield func(race.Event)) {
	if n.timer.armed && n.now >= n.timer.at {
		yield(race.Event{Kind: race.Due})
	} else if !n.late {
		yield(race.Event{Kind: race.Due})
	}
	switch n.facts.waiting {
	case 'a':
		yield(race.Event{Kind: race.Admitted})
		yield(race.Event{Kind: race.Skipped})
		yield(race.Event{Kind: race.HeldBack, Until: n.now + 1})
		yield(race.Event{Kind: race.Refused})
	case 'p':
		yield(race.Event{Kind: race.Prepared})
		yield(race.Event{Kind: race.NotReplayable})
	}
	for i := range uint8(race.MaxAttempts) {
		if n.facts.inFlight.Has(int(i)) {
			s.ends(n, i, yield)
		}
	}
	if n.facts.inFlight.Has(0) && !n.committed {
		yield(race.Event{Kind: race.Committed})
	}
	if !n.left {
		yield(race.Event{Kind: race.Cancelled})
		yield(race.Event{Kind: race.DeadlinePassed})
	}
}

// ends yields every way in which attempt i can end.
func (s *search) ends(n node, i uint8, yield func(race.Event)) {
	for _, end := range []race.End{race.OK, race.Final, race.NonFatal, race.Panicked} {
		yield(race.Event{Kind: race.Ended, Attempt: i, End: end})
		primaryDecides := i == 0 && end == race.Final
		if end == race.OK || end == race.Panicked || n.facts.decided || primaryDecides {
			continue // nobody asks what a server says of further attempts
		}
		yield(race.Event{Kind: race.Ended, Attempt: i, End: end, Pushback: race.PushbackNever})
		for _, wait := range []time.Duration{1, delay + 1} {
			yield(race.Event{Kind: race.Ended, Attempt: i, End: end, Pushback: race.PushbackAfter, Wait: wait})
		}
	}
}

// variants is every combination of the rules, for so many hedges.
func variants(hedges uint8) (all []race.Rules) {
	for bits := range 1 << 6 {
		r := race.Rules{
			MaxHedges:        hedges,
			HedgeFinal:       bits&1 != 0,
			FailureSendsNext: bits&2 != 0,
			LastFailureWins:  bits&4 != 0,
			Shared:           bits&8 != 0,
			Detached:         bits&16 != 0,
		}
		if bits&32 != 0 {
			r.Delay = delay
		}
		all = append(all, r)
	}
	return all
}

// TestMachine_EveryInterleaving goes through every schedule of a primary and up to two hedges, for every variant of the
// rules, and checks the rules on each step of each.
func TestMachine_EveryInterleaving(t *testing.T) {
	began := time.Now()
	var nodes int
	var steps, schedules uint64
	for hedges := range uint8(3) {
		for _, r := range variants(hedges) {
			s := search{rules: r, firstDue: r.Delay, horizon: 2*delay + 1}
			schedules += s.run()
			nodes += len(s.seen)
			steps += s.steps
			if s.broken != "" {
				t.Fatal(s.broken)
			}
		}
	}
	t.Logf("%d schedules in %d states, %d steps, %v", schedules, nodes, steps, time.Since(began))
}
