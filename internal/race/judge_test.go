package race_test

import (
	"fmt"

	"github.com/grpchedge/hedge/internal/race"
)

// judge checks the last step of a schedule against the rules, given the facts before and after it
// and the timer after it, and returns the rule that it breaks.
func judge(r race.Rules, before, after facts, o occurrence, timer timer) string {
	for _, check := range []func(race.Rules, facts, facts, occurrence) string{judgeSending, judgeDecision} {
		if broken := check(r, before, after, o); broken != "" {
			return broken
		}
	}
	switch wanted := after.more(r) && !after.waiting; {
	case wanted && !timer.armed:
		return "rule 10: the timer is not armed though a hedge may come due"
	case wanted && timer.at != after.due():
		return fmt.Sprintf("rule 11: the timer is armed for %d, the next hedge is due at %d", timer.at, after.due())
	case !wanted && timer.armed:
		return "rule 8: the timer is armed though no hedge waits for it"
	}
	return ""
}

// judgeSending checks that a hedge is sent when it must be, and not otherwise.
func judgeSending(r race.Rules, before, after facts, o occurrence) string {
	a, may := o.a, before.more(r)
	ask := o.e.Kind == race.Due && may && !before.waiting && o.at >= before.due()
	start := o.e.Kind == race.Admitted && before.waiting && may
	for _, c := range []struct {
		what string
		got  uint8
		want bool
	}{
		{"rule 10: ask about", a.Ask, ask},
		{"rule 10: start", a.Start, start},
		{"rule 10: drop", a.Drop, o.e.Paid && !start},
	} {
		if want := before.sent + 1; c.want && c.got != want || !c.want && c.got != 0 {
			return fmt.Sprintf("%s hedge %d; the next one is %d, and that is wanted: %t", c.what, c.got, want, c.want)
		}
	}
	if ask && a.Turn != before.turns+1 {
		return fmt.Sprintf("rule 10: turn %d, want %d", a.Turn, before.turns+1)
	}
	var cause race.Cause
	switch {
	case ask:
		cause = after.cause
	case start:
		cause = before.cause
	}
	if a.Cause != cause {
		return fmt.Sprintf("rule 10: a hedge of cause %d, want %d", a.Cause, cause)
	}
	if a.Start > 0 && before.turns >= r.MaxHedges {
		return "rule 10: more than max hedges"
	}
	return ""
}

// judgeDecision checks that the race is decided when and as the history says, that the losers are
// ended at that moment, and that the caller has its outcome as soon as it can.
func judgeDecision(r race.Rules, before, after facts, o occurrence) string {
	a := o.a
	decides := after.decided && !before.decided
	if a.Decided != decides || decides && a.Winner != after.winner {
		return fmt.Sprintf("rule 2: decided %t by %d, want %t by %d", a.Decided, a.Winner, decides, after.winner)
	}
	keeps := !before.decided && o.e.Open
	if a.Kept != keeps {
		return fmt.Sprintf("rule 1: keeps the attempt: %t, want %t", a.Kept, keeps)
	}
	kept := before.kept
	if keeps {
		kept |= 1 << o.e.Attempt
	}
	var cancel race.Attempts
	if decides {
		cancel = (after.inFlight | kept) &^ (1 << after.winner)
	}
	if a.Cancel != cancel {
		return fmt.Sprintf("rule 7: cancels %05b, want %05b", a.Cancel, cancel)
	}
	if !before.decided && o.e.Kind == race.Ended && o.e.End == race.OK && a.Winner != o.e.Attempt {
		return "rule 2: a success did not decide" // whatever the history says
	}
	if a.Panic != (a.Deliver && after.panicked) {
		return "rule 9: the caller gets a panic for an outcome, or an outcome for a panic"
	}
	deliver := !before.delivered && after.deliverable()
	if got := a.Deliver; got != deliver || got && a.Winner != after.winner {
		return fmt.Sprintf("rule 8: delivers %t, of attempt %d; want %t, of %d", got, a.Winner, deliver, after.winner)
	}
	return ""
}
