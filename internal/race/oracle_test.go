package race_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// occurrence is one event of a schedule, and the machine's actions for it.
type occurrence struct {
	e  race.Event
	at time.Duration
	a  race.Actions
}

// history is the beginning of a schedule. Its methods answer the questions of the rules by a search
// through the list; none of them calls the machine.
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
	kind := [...]string{"due", "admitted", "skipped", "held back", "refused", "prepared", "not replayable", "ended",
		"committed", "caller gone"}[e.Kind]
	switch e.Kind {
	case race.HeldBack:
		return fmt.Sprintf("%s until %d", kind, e.Until)
	case race.Ended:
		again := ""
		if e.Repeat {
			again = ", to be sent again"
		}
		return fmt.Sprintf("attempt %d %s: %s%s%s", e.Attempt, kind,
			[...]string{"OK", "final", "non-fatal", "panic", "rejected status", "rejected"}[e.End],
			[...]string{"", fmt.Sprintf(", pushed back %d", e.Wait), ", pushed back for good"}[e.Pushback], again)
	}
	return kind
}

// before is the history without its last event.
func (h history) before(i int) history { return history{h.rules, h.firstDue, h.list[:i]} }

// happened reports whether there was an event of any of the kinds.
func (h history) happened(kinds ...race.EventKind) bool {
	return slices.ContainsFunc(h.list, func(o occurrence) bool { return slices.Contains(kinds, o.e.Kind) })
}

func (h history) gone() bool { return h.happened(race.CallerGone) }

// inFlight is the attempts that were sent and have not ended.
func (h history) inFlight() race.Attempts {
	set := race.Attempts(1)
	for _, o := range h.list {
		if o.a.Start > 0 {
			set |= 1 << o.a.Start
		}
		if o.e.Kind == race.Ended {
			set &^= 1 << o.e.Attempt
		}
	}
	return set
}

func (h history) sent() (n uint8) {
	for _, o := range h.list {
		if o.a.Start > 0 {
			n++
		}
	}
	return n
}

// turnedAway reports whether event i is the end of a hedge that its server turned away, so that it
// is considered again.
func (h history) turnedAway(i int) bool {
	e := h.list[i].e
	return e.Kind == race.Ended && e.TurnedAway() && !h.rules.FailureSendsNext && h.before(i).repeats() < 0 &&
		!h.before(i).gone()
}

func (h history) away() (n uint8) {
	for i := range h.list {
		if h.turnedAway(i) {
			n++
		}
	}
	return n
}

// considered counts the hedges that were sent and not turned away, and those skipped since the last
// rejected answer. There is always room for one that sends the call again.
func (h history) considered() (n uint8) {
	for i, o := range h.list {
		switch {
		case o.isRejected():
			n = h.before(i+1).sent() - h.before(i+1).away()
		case h.turnedAway(i):
			n--
		case o.a.Start > 0, o.e.Kind == race.Skipped && !h.stale(i):
			n++
		}
		if i == h.repeats() {
			n = min(n, h.rules.MaxHedges-1)
		}
	}
	return n
}

// wantsRepeat reports whether an attempt has failed so that the call may be sent again.
func (h history) wantsRepeat() bool {
	for i, o := range h.list {
		if o.e.Repeat && !h.rules.FailureSendsNext && !h.before(i).gone() {
			return true
		}
	}
	return false
}

// repeats is the event after which the call is sent again: the first after which nothing else can
// decide it. -1: there is none.
func (h history) repeats() int {
	for i, o := range h.list {
		so := h.before(i + 1)
		if so.wantsRepeat() && so.inFlight() == 0 && so.waiting() == 0 && so.floor() <= o.at && !so.anyRejected() &&
			!so.forbidden() &&
			h.rules.MaxHedges > 0 && so.sent() < race.MaxAttempts-1 {
			return i
		}
	}
	return -1
}

// stale reports whether event i says not to send a hedge, or not yet, and a rejected answer has
// come since it was asked about that hedge: so it is asked again at once, as far as servers have
// said.
func (h history) stale(i int) bool {
	o := h.list[i]
	if o.e.Kind != race.Skipped && o.e.Kind != race.HeldBack || h.before(i).floor() > o.at {
		return false
	}
	for i--; h.list[i].a.Ask == 0; i-- {
		if h.list[i].isRejected() {
			return true
		}
	}
	return false
}

// waiting is the state of the last hedge that Ask was about: 'a' waits for admission, 'p' is being
// prepared, 0 is neither.
func (h history) waiting() byte {
	for i := len(h.list) - 1; i >= 0; i-- {
		switch o := h.list[i]; {
		case o.a.Ask > 0:
			return 'a'
		case o.a.Prepare > 0:
			return 'p'
		case o.e.Kind >= race.Admitted && o.e.Kind <= race.NotReplayable:
			return 0
		}
	}
	return 0
}

// forbidden reports whether something has ruled out further hedges.
func (h history) forbidden() bool {
	return h.pushedBackForGood() || h.happened(race.Refused, race.NotReplayable, race.CallerGone)
}

func (h history) pushedBackForGood() bool {
	return slices.ContainsFunc(h.list, func(o occurrence) bool {
		return o.e.Kind == race.Ended &&
			o.e.Pushback == race.PushbackNever
	})
}

// floor is the age before which a server wants no attempt.
func (h history) floor() (at time.Duration) {
	for _, o := range h.list {
		if o.e.Kind == race.Ended && o.e.Pushback == race.PushbackAfter {
			at = max(at, o.at+o.e.Wait)
		}
	}
	return at
}

// lastFailed is the attempt that failed last, while the caller was there.
func (h history) lastFailed() (n uint8) {
	for _, o := range h.list {
		if o.e.Kind == race.CallerGone {
			break
		}
		if o.e.Kind == race.Ended {
			n = o.e.Attempt
		}
	}
	return n
}

// firstReply is the first attempt that ended with RejectedReply, if there is one.
func (h history) firstReply() (n uint8, found bool) {
	return h.first(func(_ int, o occurrence) bool { return o.e.Kind == race.Ended && o.e.End == race.RejectedReply })
}

// first is the attempt of the first occurrence for which is reports true.
func (h history) first(is func(i int, o occurrence) bool) (n uint8, found bool) {
	for i, o := range h.list {
		if is(i, o) {
			return o.e.Attempt, true
		}
	}
	return 0, false
}

// asksAgain reports whether a rejected answer has come since it was asked about the hedge that is
// being considered.
func (h history) asksAgain() bool {
	for i := len(h.list) - 1; i >= 0 && h.waiting() == 'a' && h.list[i].a.Ask == 0; i-- {
		if h.list[i].isRejected() {
			return true
		}
	}
	return false
}

// firstStatus is the first attempt with a rejected status that would otherwise have ended the race
// before the caller gave up.
func (h history) firstStatus() (n uint8, found bool) {
	return h.first(func(i int, o occurrence) bool {
		return o.e.Kind == race.Ended && o.e.End == race.RejectedStatus && (o.e.Attempt == 0 || h.rules.HedgeFinal) &&
			!h.before(i).gone()
	})
}

// anyRejected reports whether an attempt has ended without being accepted as an answer.
func (h history) anyRejected() bool {
	return slices.ContainsFunc(h.list, occurrence.isRejected)
}

func (o occurrence) isRejected() bool {
	return o.e.Kind == race.Ended && (o.e.End == race.RejectedReply || o.e.End == race.RejectedStatus)
}

// kept is the attempts that went on after a rejected reply.
func (h history) kept() (set race.Attempts) {
	for _, o := range h.list {
		if o.e.Open {
			set |= 1 << o.e.Attempt
		}
	}
	return set
}

// calls reports whether event i is an end that calls for a hedge: one that may still be sent, and
// is not the one that is being considered already. For a rejected answer it may also be sent at
// once, as far as servers have said.
func (h history) calls(i int) bool {
	o := h.list[i]
	if h.repeats() == i {
		return true
	}
	failed := h.rules.FailureSendsNext && o.e.Kind == race.Ended && o.e.End == race.NonFatal
	if !failed && !((o.isRejected() || h.turnedAway(i)) && h.before(i+1).floor() <= o.at) {
		return false
	}
	room := min(int(h.rules.MaxHedges)-int(h.before(i+1).considered()), race.MaxAttempts-1-int(h.before(i+1).sent()))
	if h.before(i).waiting() != 0 {
		room--
	}
	return room > 0
}

// calledFor reports whether the next hedge has been called for, and not been asked about since.
// Where failures call for hedges, one that was called for, admitted, and dropped because a server
// pushed back, is still called for. For a rejected answer a pushback ends that.
func (h history) calledFor() bool {
	for i := len(h.list) - 1; i >= 0; i-- {
		switch o := h.list[i]; {
		case h.repeats() == i, h.stale(i):
			return true
		case o.e.Kind == race.HeldBack, o.a.Ask > 0:
			return false
		case o.a.Drop > 0:
			return h.rules.FailureSendsNext
		case h.calls(i):
			return true
		case o.e.Pushback == race.PushbackAfter && !h.rules.FailureSendsNext:
			return false
		}
	}
	return false
}

// due is when the next hedge is due: rule 11, if it was not held back, called for or pushed back.
func (h history) due() time.Duration { return max(h.dueButForPushback(), h.floor()) }

func (h history) dueButForPushback() time.Duration {
	for i := len(h.list) - 1; i >= 0; i-- {
		switch o := h.list[i]; {
		case h.calls(i), h.stale(i):
			return o.at
		case o.e.Kind == race.HeldBack:
			return o.e.Until
		case o.a.Start > 0, o.e.Kind == race.Skipped:
			if earlier := h.before(i); earlier.calledFor() {
				return earlier.dueButForPushback()
			}
			return o.at + h.rules.Delay
		}
	}
	return h.firstDue
}

// verdict is which attempt the last event made the winner, of a race that was not decided before
// it.
func (h history) verdict() (winner uint8, decided bool) {
	last := h.list[len(h.list)-1]
	earlier := h.before(len(h.list) - 1)
	reply, hasReply := h.firstReply()
	status, hasStatus := h.firstStatus()
	if n := last.e.Attempt; last.e.Kind == race.Ended {
		switch {
		case last.e.End == race.OK, last.e.End == race.Panicked:
			return n, true
		case hasReply: // no failure replaces a reply
		case n == 0 && (last.e.End == race.Final || earlier.gone()):
			return 0, true
		case n > 0 && last.e.End == race.Final && h.rules.HedgeFinal && !earlier.gone():
			return n, true
		}
	}
	if h.gone() && hasReply {
		return reply, true
	}
	if h.gone() && hasStatus {
		return status, true
	}
	primaryRuns := earlier.inFlight().Has(0)
	if last.e.Kind == race.Committed && primaryRuns {
		return 0, true
	}
	if h.inFlight().Has(0) {
		return 0, false
	}
	expected := (h.rules.FailureSendsNext || h.anyRejected() || h.wantsRepeat()) && !h.forbidden() &&
		(h.waiting() != 0 || h.calledFor())
	if !h.gone() && (h.inFlight() != 0 || expected) {
		return 0, false
	}
	switch {
	case hasReply:
		return reply, true
	case hasStatus:
		return status, true
	case h.rules.FailureSendsNext:
		return h.lastFailed(), true
	}
	return 0, true
}

// facts is all that the rules may ask about a history, now or after further events. Two schedules
// with equal facts, and equal machines, have the same future.
type facts struct {
	inFlight            race.Attempts
	waiting             byte
	gone                bool // and the race was not decided before
	decided             bool
	winner              uint8
	panicked, delivered bool

	undecided
}

// undecided is what matters only until the race is decided.
type undecided struct {
	sent, considered uint8
	forbidden        bool
	calledFor        bool
	dueButForPushback,
	due, floor time.Duration
	lastFailed  uint8
	reply       uint8
	hasReply    bool
	status      uint8
	hasStatus   bool
	anyRejected bool
	stale       bool // the next answer is stale
	repeats     bool // the call is, or was, sent again
	wants       bool // an attempt has failed so that it may be
	kept        race.Attempts
	away        uint8
}

// facts reads the history. earlier are the facts before the last event.
func (h history) facts(earlier facts) facts {
	f := earlier
	f.inFlight, f.waiting = h.inFlight(), h.waiting()
	if len(h.list) > 0 {
		last := h.list[len(h.list)-1]
		if !f.decided {
			f.gone = h.gone()
			f.winner, f.decided = h.verdict()
		}
		if last.e.Kind == race.Ended && last.e.End == race.Panicked && f.decided && last.e.Attempt == f.winner {
			f.panicked = true
		}
		f.delivered = f.delivered || last.a.Deliver
	}
	f.undecided = undecided{sent: f.sent}
	if !f.decided {
		f.undecided = undecided{
			sent: h.sent(), considered: h.considered(), forbidden: h.forbidden(), calledFor: h.calledFor(),
			dueButForPushback: h.dueButForPushback(), due: h.due(), floor: h.floor(), lastFailed: h.lastFailed(),
			anyRejected: h.anyRejected(), kept: h.kept(), away: h.away(),
		}
		f.reply, f.hasReply = h.firstReply()
		f.status, f.hasStatus = h.firstStatus()
		f.stale = h.asksAgain()
		f.repeats = h.repeats() >= 0
		f.wants = h.wantsRepeat()
	}
	return f
}

// more reports whether a further hedge may be sent.
func (f facts) more(r race.Rules) bool {
	return !f.decided && !f.forbidden && f.considered < r.MaxHedges && f.sent < race.MaxAttempts-1
}

// deliverable reports whether a decided race may return to its caller: the caller's goroutine is
// back from the primary, and no goroutine reads the caller's memory.
func (f facts) deliverable() bool {
	return f.decided && f.waiting == 0 && !f.inFlight.Has(int(f.winner)) && !f.inFlight.Has(0)
}
