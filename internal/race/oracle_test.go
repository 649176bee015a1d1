package race_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// occurrence is one event of a schedule, and the actions of the state for it.
type occurrence struct {
	e  race.Event
	at time.Duration
	a  race.Actions
}

// history is the beginning of a schedule.
type history struct {
	rules    race.Rules
	firstDue time.Duration
	list     []occurrence
}

func (h history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v, first due at %d", h.rules, h.firstDue)
	for _, o := range h.list {
		fmt.Fprintf(&b, "\n  at %d: %s → %+v", o.at, describe(o.e), o.a)
	}
	return b.String()
}

func describe(e race.Event) string {
	kind := [...]string{"due", "admitted", "held back", "refused", "not replayable", "ended",
		"committed", "caller gone"}[e.Kind]
	switch e.Kind {
	case race.HeldBack:
		return fmt.Sprintf("%s until %d, waits: %t", kind, e.Until, e.Waits)
	case race.Ended:
		over := ""
		if e.Failover {
			over = fmt.Sprintf(", failing over, cut %t", e.Cut)
		}
		return fmt.Sprintf("attempt %d %s: %s%s%s", e.Attempt, kind,
			[...]string{"OK", "final", "non-fatal", "panic", "rejected status", "rejected"}[e.End],
			[...]string{"", fmt.Sprintf(", pushed back %d", e.Wait), ", pushed back for good"}[e.Pushback], over)
	}
	return kind
}

// facts is all that the rules may ask about a history, now or after further events. It is made of
// events and of the hedges that were asked about, sent and dropped; none of it calls the
// state. Two schedules with equal facts, and equal states, have the same future.
type facts struct {
	inFlight            race.Attempts // sent, and not ended
	waiting             bool          // the next hedge is being considered
	gone                bool          // and the race was not decided before
	decided             bool
	winner              uint8
	panicked, delivered bool

	undecided
}

// undecided has the facts that matter until the race is decided.
type undecided struct {
	sent      uint8
	turns     uint8         // hedges that count against MaxHedges: sent, and neither turned away nor cut
	forbidden bool          // no further hedges
	calledFor bool          // an end made the next hedge due, and it has not been asked about since
	dueAt     time.Duration // of the next hedge
	reply     uint8         // the first attempt that ended with RejectedReply
	hasReply  bool
	status    uint8 // the first with a rejected status that would have ended the race
	hasStatus bool
	rejected  bool          // an attempt has ended with a rejected answer
	stale     bool          // an attempt was rejected, or failed over, since the considered hedge was asked about
	fails     bool          // an attempt has failed in a way that makes the next hedge due
	mends     bool          // the next hedge is due because of a failure
	cause     race.Cause    // of the hedge that was asked about last, and not sent
	cut       bool          // the connection of an attempt was cut
	hopes     bool          // an attempt has ended otherwise than by a failure
	kept      race.Attempts // went on after a rejected reply
}

// begins is the facts of a race without an event.
func begins(firstDue time.Duration) facts {
	return facts{inFlight: 1, undecided: undecided{dueAt: firstDue}}
}

// then returns the facts after one more event.
func (f facts) then(r race.Rules, o occurrence) facts {
	was, e := f, o.e
	if o.a.Start > 0 {
		f.inFlight |= 1 << o.a.Start
	}
	if e.Kind == race.Ended {
		f.inFlight &^= 1 << e.Attempt
	}
	switch {
	case o.a.Ask > 0:
		f.waiting = true
	case was.panicsUnsent(e), e.Kind >= race.Admitted && e.Kind <= race.NotReplayable:
		f.waiting = false
	}
	if !was.decided {
		f.noteEnd(r, was, o)
		f.noteHedge(r, was, o)
		f.winner, f.decided = f.verdict(r, was, e)
	}
	if f.decided {
		f.panicked = f.panicked || e.Kind == race.Ended && e.End == race.Panicked && e.Attempt == f.winner
		f.undecided = undecided{sent: was.sent}
	}
	f.delivered = f.delivered || o.a.Deliver
	return f
}

// panicsUnsent reports whether the next hedge panics while it is considered.
func (f facts) panicsUnsent(e race.Event) bool {
	return e.Kind == race.Ended && f.waiting && e.Attempt == f.sent+1
}

// noteEnd notes the end of an attempt, or of the caller's context.
func (f *facts) noteEnd(r race.Rules, was facts, o occurrence) {
	e := o.e
	f.gone = was.gone || e.Kind == race.CallerGone
	if e.Kind != race.Ended {
		return
	}
	if e.Open {
		f.kept |= 1 << e.Attempt
	}
	f.cut, f.hopes = f.cut || e.Cut, f.hopes || e.End != race.NonFatal
	if e.End == race.RejectedReply && !f.hasReply {
		f.reply, f.hasReply = e.Attempt, true
	}
	f.rejected = f.rejected || o.isRejected()
	if was.gone {
		return
	}
	if e.End == race.RejectedStatus && (e.Attempt == 0 || r.HedgeFinal) && !f.hasStatus {
		f.status, f.hasStatus = e.Attempt, true
	}
}

// noteHedge notes when the next hedge is due, and whether the race waits for it.
func (f *facts) noteHedge(r race.Rules, was facts, o occurrence) {
	e := o.e
	f.forbidden = f.forbidden || e.Kind == race.Refused || e.Kind == race.NotReplayable || e.Kind == race.CallerGone
	over := e.Failover && !was.gone
	f.fails = was.fails || over
	f.stale = f.waiting && o.a.Ask == 0 && (was.stale || o.isRejected() || over)
	// An answer not to send a hedge yet did not consider a rejected answer that came after
	// the question: it is asked again at once.
	again := e.Kind == race.HeldBack && was.stale
	away := e.Kind == race.Ended && e.TurnedAway() && !r.CountsAll && !was.gone
	if o.a.Start > 0 {
		f.sent++
	}
	switch {
	case away, over && e.Cut && e.Attempt > 0 && !r.CountsAll:
		f.turns--
	case o.a.Start > 0:
		f.turns++
	}
	// An end calls for a hedge that may still be sent, and is not being considered already.
	room := min(int(r.MaxHedges)-int(f.turns), race.MaxHedges-int(f.sent))
	if was.waiting {
		room--
	}
	calls := room > 0 && (o.isRejected() || over || away)
	switch {
	case over && calls:
		f.mends = true
	case o.a.Ask > 0:
		f.mends, f.cause = false, was.because()
	case o.a.Start > 0:
		f.cause = race.Slow
	}
	switch {
	case again:
		f.calledFor = true
	case e.Kind == race.HeldBack, o.a.Ask > 0:
		f.calledFor = e.Waits
	case calls:
		f.calledFor = true
	}
	switch {
	case calls, again:
		f.dueAt = o.at
	case e.Kind == race.HeldBack:
		f.dueAt = e.Until
	case o.a.Start > 0 && !was.calledFor:
		f.dueAt = o.at + r.Delay
	}
}

// because is the cause of a hedge that is asked about.
func (f facts) because() race.Cause {
	switch {
	case f.cut && f.inFlight == 0 && !f.hopes:
		return race.Cut
	case f.mends || f.cause >= race.Failed:
		return race.Failed
	case f.rejected:
		return race.Rejected
	}
	return race.Slow
}

func (o occurrence) isRejected() bool { return o.e.Kind == race.Ended && o.e.End.IsRejected() }

// verdict is which attempt the last event made the winner, of a race that was not decided before
// it.
func (f facts) verdict(r race.Rules, was facts, e race.Event) (winner uint8, decided bool) {
	if n := e.Attempt; e.Kind == race.Ended {
		switch {
		case e.End == race.OK, e.End == race.Panicked:
			return n, true
		case f.hasReply: // no failure replaces a reply
		case n == 0 && (e.End == race.Final || was.gone):
			return 0, true
		case n > 0 && e.End == race.Final && r.HedgeFinal && !was.gone:
			return n, true
		}
	}
	expected := (f.rejected || f.fails) && !f.forbidden && (f.waiting || f.calledFor)
	switch {
	case f.gone && f.hasReply:
		return f.reply, true
	case f.gone && f.hasStatus:
		return f.status, true
	case e.Kind == race.Committed && was.inFlight.Has(0):
		return 0, true
	case f.inFlight.Has(0), !f.gone && (f.inFlight != 0 || expected):
		return 0, false
	case f.hasReply:
		return f.reply, true
	case f.hasStatus:
		return f.status, true
	}
	return 0, true
}

// due is when the next hedge is due: rule 11, if it was not held back or called for.
func (f facts) due() time.Duration { return f.dueAt }

// more reports whether a further hedge may be sent.
func (f facts) more(r race.Rules) bool {
	return !f.decided && !f.forbidden && f.turns < r.MaxHedges && f.sent < race.MaxHedges
}

// deliverable reports whether a decided race may return to its caller: the caller's goroutine is
// back from the primary, and no goroutine reads the caller's memory.
func (f facts) deliverable() bool {
	return f.decided && !f.waiting && !f.inFlight.Has(int(f.winner)) && !f.inFlight.Has(0)
}

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
