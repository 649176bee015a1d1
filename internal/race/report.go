package race

import "time"

// Report is what happened in one race. The runner delivers it once, when the caller gets its outcome, and everything that
// is counted or learned follows from it. All times are ages of the call: durations since its start.
//
// A loser that is still unwinding when the report is delivered has no end in it. The runner reports a panic of such a
// loser apart, as nothing else of it matters.
type Report struct {
	// Winner is the attempt whose outcome the caller gets, 0 being the primary.
	Winner int
	// Panicked says that the outcome is a panic.
	Panicked bool
	// Err is the outcome's error, nil for a success or a panic.
	Err error
	// DecidedAt is when the race was decided, and DeliveredAt when the caller got the outcome. They differ by the time that
	// the primary took to return, a hedge to be prepared, or losers to let go of the caller's memory.
	DecidedAt, DeliveredAt time.Duration

	// CallerGone says how the caller's context ended before the race was decided, and GoneAt when.
	CallerGone CallerGone
	GoneAt     time.Duration
	// Committed says that the caller of a stream was given the primary's headers, which decided the race.
	Committed bool

	// Hedges counts the hedges sent, Skipped those that sampling left out, and Dropped those that were admitted and then
	// not sent, because the race was over, the request could not be copied or a server had pushed back meanwhile.
	Hedges, Skipped, Dropped int
	// NotReplayable says that a hedge could not be prepared.
	NotReplayable bool
	// LoserPanics counts losers that panicked after the race was decided and before the report was delivered.
	LoserPanics int

	// Attempts holds the primary at 0 and hedge n at n. Those after Hedges are zero.
	Attempts [MaxAttempts]AttemptReport

	decided bool
}

// CallerGone is how the caller's context ended.
type CallerGone uint8

const (
	CallerStayed CallerGone = iota
	CallerCancelled
	CallerDeadline
)

// AttemptReport is what happened to one attempt.
type AttemptReport struct {
	// SentAt is when it was sent.
	SentAt time.Duration
	// HasEnded says that it ended before the report was delivered: at EndedAt, as End says, with Err, and with a pushback
	// if its failure came before the race was decided.
	HasEnded bool
	EndedAt  time.Duration
	End      End
	Err      error
	Pushback Pushback
	// CutShort says that the race was decided, at Report.DecidedAt, while it was in flight and by another attempt. It was
	// then cancelled, or left to finish. It may have ended since, even with OK.
	CutShort bool
}

// Took is how long the attempt took to answer. It is false for one that failed, or that was cut short and has not
// answered all the same.
func (a AttemptReport) Took() (time.Duration, bool) {
	return a.EndedAt - a.SentAt, a.HasEnded && a.End == OK
}

// Unanswered is how long attempt n had gone without an answer when the race was decided by another attempt, a lower bound
// of what it would have taken. It is false for an attempt that ended earlier, or that answered all the same.
func (r *Report) Unanswered(n int) (time.Duration, bool) {
	a := r.Attempts[n]
	_, answered := a.Took()
	return r.DecidedAt - a.SentAt, a.CutShort && !answered
}

// Record adds to the report one event and the actions that the machine wanted for it, at the given age of the call. err is
// what the attempt of an Ended event ended with. Nothing may be recorded once an outcome was to be delivered.
func (r *Report) Record(e Event, a Actions, err error, now time.Duration) {
	switch e.Kind {
	case Skipped:
		r.Skipped++
	case NotReplayable:
		r.NotReplayable = true
	case Committed:
		r.Committed = r.Committed || a.Decided
	case Cancelled:
		r.gone(CallerCancelled, now)
	case DeadlinePassed:
		r.gone(CallerDeadline, now)
	case Ended:
		t := &r.Attempts[e.Attempt]
		t.HasEnded, t.EndedAt, t.End, t.Err = true, now, e.End, err
		if !r.decided {
			t.Pushback = e.Pushback
		} else if e.End == Panicked && int(e.Attempt) != r.Winner {
			r.LoserPanics++
		}
	}
	if a.Start > 0 {
		r.Hedges++
		r.Attempts[a.Start].SentAt = now
	}
	if a.Drop > 0 {
		r.Dropped++
	}
	if a.Decided {
		r.decide(a, now)
	}
	if a.Deliver != DeliverNothing {
		r.DeliveredAt = now
		r.Panicked = a.Deliver == DeliverPanic
		r.Err = r.Attempts[r.Winner].Err
	}
}

// gone takes note of the end of the caller's context, if it is the first and the race is not decided.
func (r *Report) gone(how CallerGone, now time.Duration) {
	if !r.decided && r.CallerGone == CallerStayed {
		r.CallerGone, r.GoneAt = how, now
	}
}

func (r *Report) decide(a Actions, now time.Duration) {
	r.decided, r.DecidedAt, r.Winner = true, now, int(a.Winner)
	for n := range r.Attempts {
		r.Attempts[n].CutShort = (a.Cancel | a.Leave).Has(n)
	}
}
