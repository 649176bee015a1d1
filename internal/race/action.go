package race

import "time"

// Actions is what one [Machine.Step] wants done. Several may be wanted at once; the zero value wants nothing, so that
// whoever waits for the race goes on waiting. Hedges are named by their number, and 0 means no hedge.
type Actions struct {
	Timer TimerAction
	At    time.Duration // ArmTimer: the age of the call at which the timer is to fire

	// Ask wants admission asked for this hedge; Admitted, Skipped, HeldBack, Refused or
	// NotReplayable answers. Turn counts the hedges
	// considered so far, this one and skipped ones included. It is unchanged when admission is asked again about the
	// same hedge.
	Ask, Turn uint8
	// Prepare wants this hedge prepared, outside of any lock; Prepared or NotReplayable answers. The hedge reads the
	// caller's memory only until then.
	Prepare uint8
	// Start wants this hedge sent. Its end must be reported by an Ended event.
	Start uint8
	// Drop wants this hedge, which was admitted, forgotten: it is not sent, and what was paid for it may be paid back.
	Drop uint8

	// Cancel and Leave are the attempts in flight that have lost, at the moment that another one has won: those to cancel,
	// and those to leave until they end by themselves. Their ends must be reported too.
	Cancel, Leave Attempts

	// Decided says that this step decided the race, and Winner by which attempt.
	Decided bool
	// Deliver wants what the winner had delivered to the caller. It is wanted once in a race, in the step that decides it
	// or a later one. No hedge is being prepared then, and the caller's goroutine is back from the primary.
	Deliver Delivery
	// Winner is the attempt that decided the race. It is set with Decided and with Deliver.
	Winner uint8
}

// TimerAction is what is to be done with the one timer of a race.
type TimerAction uint8

const (
	KeepTimer TimerAction = iota
	// ArmTimer arms the timer to fire once, at Actions.At, in place of any earlier time.
	ArmTimer
	// StopTimer stops the timer. A Due event that is already on its way does no harm.
	StopTimer
)

// Delivery is what the caller gets.
type Delivery uint8

const (
	DeliverNothing Delivery = iota
	// DeliverOutcome gives the caller the outcome of the winner, a success or a failure.
	DeliverOutcome
	// DeliverPanic panics on the caller's goroutine with what the winner panicked with.
	DeliverPanic
)

// MaxAttempts is the most attempts that a race can have: a primary and four hedges.
const MaxAttempts = 5

// Attempts is a set of attempts.
type Attempts uint8

// Has reports whether attempt n is in the set.
func (s Attempts) Has(n int) bool { return s&only(uint8(n)) != 0 }

func only(n uint8) Attempts { return 1 << n }
