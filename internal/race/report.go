package race

import (
	"context"
	"math"
	"time"
)

// Report is the record of one race. [Policy.Book] takes it once, when the outcome is delivered. All
// counts and latencies are derived from it. All times are ages of the call: durations since its
// start.
//
// A loser that is in flight when the report is made has no end in it. If that loser panics later,
// [Policy.LoserPanicked] is called.
type Report struct {
	Winner   int   // the attempt that decided the call, 0 being the primary
	Panicked bool  // the outcome is a panic
	Err      error // of the outcome; nil for a success or a panic

	// DecidedAt is the time of the decision, and DeliveredAt the time at which the caller gets the
	// outcome. Between them the primary returns, or a hedge is prepared.
	DecidedAt, DeliveredAt time.Duration

	CallerGone bool          // the caller's context ended before the race was decided
	GaveUp     bool          // CallerGone, and not by the deadline
	GoneAt     time.Duration // the time of CallerGone
	Committed  bool          // the primary's headers, received by the caller, decided the race

	Hedges int // sent
	// Dropped counts hedges admitted but not sent: the race was over, the request could not be
	// copied, or a server pushed back.
	Dropped int
	// Repeated means that the last hedge, or the hedge that Admit considers, repeats the call: see
	// [Event].Repeat.
	Repeated bool
	// Failover means that the hedge that Admit considers is due because an attempt failed: see
	// [Event].Failover.
	Failover bool

	NotReplayable bool // a hedge could not be prepared
	// Due is the age at which the hedge that Admit considers was due. In virtual time that is the age
	// at which Admit is called.
	Due         time.Duration
	LoserPanics int // losers that panicked between the decision and the delivery

	Attempts [MaxAttempts]AttemptReport // the primary at 0, hedge n at n; zero beyond Hedges
}

type AttemptReport struct {
	SentAt time.Duration
	// HasEnded means that the attempt ended before the report was delivered. Pushback is set only
	// for a failure before the decision.
	HasEnded bool
	EndedAt  time.Duration
	End      EndKind
	Err      error
	Pushback Pushback
	// NotBefore is the age before which the attempt's server wants no other one; 0 without a pushback.
	NotBefore time.Duration
	// TurnedAway means that the attempt is a hedge that its server turned away: see
	// [Event.TurnedAway].
	TurnedAway bool
	Failover   bool // the attempt is a hedge that was due because another attempt had failed
	// CutShort means that another attempt decided the race while this one was in flight. The
	// attempt may have ended since, even with OK. An attempt kept after a rejected reply is not in
	// flight.
	CutShort bool
}

// Failed reports whether the attempt ended with a status other than OK.
func (a *AttemptReport) Failed() bool {
	return a.HasEnded && (a.End == Final || a.End == NonFatal || a.End == RejectedStatus)
}

func (r *Report) Rejected() (n int) {
	for i := range r.Attempts {
		if r.Attempts[i].End.IsRejected() {
			n++
		}
	}
	return n
}

// Failovers returns the number of hedges that were due because an attempt had failed.
func (r *Report) Failovers() (n int) {
	for i := range r.Attempts {
		if r.Attempts[i].Failover {
			n++
		}
	}
	return n
}

// FirstNotTurnedAway returns the first hedge that was not turned away; 0 if there is none.
func (r *Report) FirstNotTurnedAway() int {
	for n := 1; n <= r.Hedges; n++ {
		if !r.Attempts[n].TurnedAway {
			return n
		}
	}
	return 0
}

// Unanswered returns the time that attempt n had been in flight when another attempt decided the
// race: a lower bound of its latency. It returns false if attempt n ended before, or succeeded
// later.
func (r *Report) Unanswered(n int) (time.Duration, bool) {
	a := &r.Attempts[n]
	answered := a.HasEnded && (a.End == OK || a.End == RejectedReply)
	return r.DecidedAt - a.SentAt, a.CutShort && !answered
}

// Note adds an event and the actions that the machine returned for it, at the age now of the
// call. decided reports whether the race was decided before. err is the error of an Ended event or
// of the caller's context. Note must not be called after the step that delivered the outcome.
func (r *Report) Note(decided bool, e Event, a Actions, err error, now time.Duration) {
	switch e.Kind {
	case NotReplayable:
		r.NotReplayable = true
	case Committed:
		r.Committed = r.Committed || a.Decided
	case CallerGone:
		if !decided && !r.CallerGone {
			r.CallerGone, r.GaveUp, r.GoneAt = true, err != context.DeadlineExceeded, now
		}
	case Ended:
		t := &r.Attempts[e.Attempt]
		t.HasEnded, t.EndedAt, t.End, t.Err = true, now, e.End, err
		if !decided {
			t.Pushback, t.TurnedAway = e.Pushback, e.TurnedAway()
			switch e.Pushback {
			case PushbackAfter:
				t.NotBefore = now + e.Wait
			case PushbackNever:
				t.NotBefore = math.MaxInt64
			}
		} else if e.End == Panicked && int(e.Attempt) != r.Winner {
			r.LoserPanics++
		}
	}
	if a.Start > 0 {
		r.Hedges++
		r.Repeated = a.Repeat
		r.Attempts[a.Start].SentAt, r.Attempts[a.Start].Failover = now, a.Failover
	}
	if a.Drop > 0 {
		r.Dropped++
	}
	if a.Decided {
		r.DecidedAt, r.Winner = now, int(a.Winner)
		for n := range r.Attempts {
			r.Attempts[n].CutShort = a.Cancel.Has(n) && !r.Attempts[n].HasEnded
		}
	}
	if a.Deliver {
		r.DeliveredAt, r.Panicked = now, a.Panic
		r.Err = r.Attempts[r.Winner].Err
	}
}
