package race

import (
	"context"
	"time"
)

// Report is what happened in one race. [Policy.Book] gets it once, when the outcome is delivered. All counts and latencies
// follow from it. All times are ages of the call: durations since its start.
//
// A loser that is still running when the report is made has no end in it. If such a loser panics, [Policy.LoserPanicked] is
// called.
type Report struct {
	Winner   int   // the attempt whose outcome the caller gets, 0 being the primary
	Panicked bool  // the outcome is a panic
	Err      error // of the outcome; nil for a success or a panic

	// DecidedAt is when the race was decided, and DeliveredAt when the caller got the outcome. In between, the primary
	// returns, or a hedge is prepared.
	DecidedAt, DeliveredAt time.Duration

	CallerGone bool          // the caller's context ended before the race was decided
	GaveUp     bool          // it did, and not by its deadline
	GoneAt     time.Duration // when it did
	Committed  bool          // the caller of a stream received the primary's headers, which decided the race

	Hedges        int  // that were sent
	Dropped       int  // that were admitted and not sent: the race was over, the request could not be copied, or a server pushed back
	Repeated      bool // the last hedge, or the one that Admit is asked about, sends the call again: see [Event].Repeat
	NotReplayable bool // a hedge could not be prepared
	// Due is the age at which the hedge that Admit is asked about was due. In virtual time that is
	// the age at which Admit is asked.
	Due         time.Duration
	LoserPanics int // losers that panicked after the race was decided and before the report was delivered

	Attempts [MaxAttempts]AttemptReport // the primary at 0 and hedge n at n; those after Hedges are zero

	decided bool
}

type AttemptReport struct {
	SentAt time.Duration
	// HasEnded says that it ended before the report was delivered: at EndedAt, as End says, with Err, and with a pushback
	// if its failure came before the race was decided.
	HasEnded bool
	EndedAt  time.Duration
	End      EndKind
	Err      error
	Pushback Pushback
	// TurnedAway says that the attempt is a hedge that its server turned away: see
	// [Event.TurnedAway].
	TurnedAway bool
	// CutShort says that another attempt decided the race, at Report.DecidedAt, while this one was in flight. It may have
	// ended since, even with OK. An attempt that was kept after a rejected reply was not in flight.
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

// Served returns the first hedge that was not turned away; 0 if there is none.
func (r *Report) Served() int {
	for n := 1; n <= r.Hedges; n++ {
		if !r.Attempts[n].TurnedAway {
			return n
		}
	}
	return 0
}

// Unanswered returns how long attempt n had been in flight when another attempt decided the race. That is a lower bound of
// its latency. It returns false if attempt n ended before, or succeeded after.
func (r *Report) Unanswered(n int) (time.Duration, bool) {
	a := &r.Attempts[n]
	answered := a.HasEnded && (a.End == OK || a.End == RejectedReply)
	return r.DecidedAt - a.SentAt, a.CutShort && !answered
}

// Record adds one event, and the actions that the machine returned for it, at the given age of the call. err is the error of
// an Ended event, or of the caller's context. Record must not be called after the step that delivered the outcome.
func (r *Report) Record(e Event, a Actions, err error, now time.Duration) {
	switch e.Kind {
	case NotReplayable:
		r.NotReplayable = true
	case Committed:
		r.Committed = r.Committed || a.Decided
	case CallerGone:
		if !r.decided && !r.CallerGone {
			r.CallerGone, r.GaveUp, r.GoneAt = true, err != context.DeadlineExceeded, now
		}
	case Ended:
		t := &r.Attempts[e.Attempt]
		t.HasEnded, t.EndedAt, t.End, t.Err = true, now, e.End, err
		if !r.decided {
			t.Pushback, t.TurnedAway = e.Pushback, e.TurnedAway()
		} else if e.End == Panicked && int(e.Attempt) != r.Winner {
			r.LoserPanics++
		}
	}
	if a.Start > 0 {
		r.Hedges++
		r.Repeated = a.Repeat
		r.Attempts[a.Start].SentAt = now
	}
	if a.Drop > 0 {
		r.Dropped++
	}
	if a.Decided {
		r.decided, r.DecidedAt, r.Winner = true, now, int(a.Winner)
		for n := range r.Attempts {
			r.Attempts[n].CutShort = a.Cancel.Has(n) && !r.Attempts[n].HasEnded
		}
	}
	if a.Deliver {
		r.DeliveredAt, r.Panicked = now, a.Panic
		r.Err = r.Attempts[r.Winner].Err
	}
}
