package race_test

import (
	"fmt"

	"github.com/grpchedge/hedge/internal/race"
)

// judge checks the last step of a schedule against the rules, given what was known before and after it, and returns what
// it breaks. The timer is that of the schedule after the step.
func judge(r race.Rules, before, after facts, o occurrence, timer timer) string {
	for _, check := range []func(race.Rules, facts, facts, occurrence) string{judgeOutcome, judgeSending, judgeDecision} {
		if broken := check(r, before, after, o); broken != "" {
			return broken
		}
	}
	switch wanted := after.more(r) && after.waiting == 0; {
	case wanted && !timer.armed:
		return "rule 10: the timer is not armed though a hedge may come due"
	case wanted && timer.at != after.due:
		return fmt.Sprintf("rule 11: the timer is armed for %d, the next hedge is due at %d", timer.at, after.due)
	case !wanted && timer.armed:
		return "rule 8: the timer is armed though no hedge waits for it"
	}
	return ""
}

// judgeOutcome checks what a caller sees, rule by rule, in the words of the rules.
func judgeOutcome(r race.Rules, before, after facts, o occurrence) string {
	winner, a := int(o.a.Winner), o.a
	won := o.e.Kind == race.Ended && o.e.Attempt == a.Winner // by its own end
	primary := o.e.Kind == race.Ended && o.e.Attempt == 0
	poor, reply := before.reply, before.hasReply
	if o.e.Kind == race.Ended && o.e.End == race.PoorReply && !reply {
		poor, reply = o.e.Attempt, true
	}
	isPoor := reply && a.Winner == poor
	status, answered := before.status, before.hasStatus
	if o.e.Kind == race.Ended && o.e.End == race.PoorStatus && !answered && (primary || r.HedgeFinal) {
		status, answered = o.e.Attempt, true
	}
	isStatus := answered && !reply && a.Winner == status
	switch {
	case a.Decided && before.decided:
		return "rule 1: decided twice"
	case a.Deliver && before.delivered:
		return "rule 1: delivered twice"
	case a.Deliver && after.inFlight.Has(winner):
		return "rule 1: delivered the outcome of an attempt that has none"
	case a.Cancel.Has(int(after.winner)) && after.decided:
		return "rule 1: the winner is cancelled"
	case a.Decided && before.inFlight.Has(0) && winner > 0 &&
		!(won && (o.e.End == race.OK || o.e.End == race.Panicked || o.e.End == race.Final && r.HedgeFinal)) && !((isPoor || isStatus) && (after.gone || primary)):
		return "rule 2: a hedge's failure ended the race while the primary was in flight"
	case a.Decided && reply && !isPoor && o.e.Kind != race.Committed && !(won && (o.e.End == race.OK || o.e.End == race.Panicked)):
		return "rule 2: a failure replaced a reply"
	case a.Decided && isPoor && !after.gone && after.inFlight != 0 && o.e.Kind != race.Committed:
		return "rule 2: a poor answer ended the race while another attempt could do better"
	case a.Decided && answered && !reply && !isStatus && o.e.Kind != race.Committed && !(won && (o.e.End == race.OK || o.e.End == race.Panicked || o.e.End == race.Final)):
		return "rule 2: a failure replaced a poor status"
	case a.Decided && winner > 0 && !won && !isPoor && !isStatus && !r.LastFailureWins:
		return "rule 2: nothing succeeded and the caller does not get the primary's error"
	case !before.decided && o.e.Kind == race.Ended && o.e.End == race.OK && !(a.Decided && won):
		return "rule 2: a success did not decide"
	case !before.decided && primary && !o.isPoor() && !o.e.Repeat && !r.FailureSendsNext && before.sent == 0 && !a.Decided:
		return "rule 3: the primary failed before any hedge was sent and the call goes on"
	case !before.decided && after.gone && !after.inFlight.Has(0) && !a.Decided:
		return "rule 4: the caller has gone, the primary is back, and the call goes on"
	case !before.decided && after.gone && (reply || before.hasStatus) && !a.Decided:
		return "rule 4: the caller has gone, there is a reply, and the call goes on"
	case before.gone && (a.Ask|a.Prepare|a.Start) > 0:
		return "rule 4: a hedge was sent for a caller that has gone"
	case !before.decided && o.e.Kind == race.Ended && o.e.End == race.Panicked && !(a.Decided && won):
		return "rule 9: a panic did not surface"
	case a.Panic != (a.Deliver && after.panicked):
		return "rule 9: the caller gets a panic for an outcome, or an outcome for a panic"
	}
	return ""
}

// judgeSending checks that a hedge is sent when it must be, and not otherwise.
func judgeSending(r race.Rules, before, after facts, o occurrence) string {
	a, may := o.a, before.more(r)
	ask := o.e.Kind == race.Due && may && before.waiting == 0 && o.at >= before.due
	admitted := o.e.Kind == race.Admitted && before.waiting == 'a'
	prepared := o.e.Kind == race.Prepared && before.waiting == 'p'
	unpreparable := o.e.Kind == race.NotReplayable && before.waiting == 'p'
	may = may && o.at >= before.floor
	for _, c := range []struct {
		what string
		got  uint8
		want bool
	}{
		{"rule 10: ask about", a.Ask, ask},
		{"rule 10: prepare", a.Prepare, admitted && may},
		{"rule 10: start", a.Start, prepared && may},
		{"rule 10: drop", a.Drop, (admitted || prepared) && !may || unpreparable},
	} {
		if want := before.sent + 1; c.want && c.got != want || !c.want && c.got != 0 {
			return fmt.Sprintf("%s hedge %d; the next one is %d, and that is wanted: %t", c.what, c.got, want, c.want)
		}
	}
	if ask && a.Turn != before.considered+1 {
		return fmt.Sprintf("rule 10: turn %d, want %d", a.Turn, before.considered+1)
	}
	if (a.Ask > 0 || a.Start > 0) && a.Repeat != before.repeats {
		return fmt.Sprintf("rule 3: repeats the call: %t, want %t", a.Repeat, before.repeats)
	}
	if a.Start > 0 && before.considered >= r.MaxHedges {
		return "rule 10: more than max hedges"
	}
	return ""
}

// judgeDecision checks that the race is decided when and as the history says, that the losers are ended at that moment,
// and that the caller has its outcome as soon as it can.
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
	deliver := !before.delivered && after.deliverable(r)
	if got := a.Deliver; got != deliver || got && a.Winner != after.winner {
		return fmt.Sprintf("rule 8: delivers %t, of attempt %d; want %t, of %d", got, a.Winner, deliver, after.winner)
	}
	return ""
}
