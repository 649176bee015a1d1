package race

import (
	"context"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Run is Begin and Decide.
func (r *Race) Run(ctx context.Context, cancel context.CancelCauseFunc, plan Plan, p Policy, e Entrant) Result {
	r.Begin(ctx, cancel, plan, p, e)
	return r.Decide()
}

func Mutex(r *Race) *sync.Mutex { return &r.mu }

func Armed(a *Alarm) bool { return !a.firesAt.IsZero() }

// Key returns s without what Step only records. Two states with one key have the same future.
func Key(s State) State { return rewrite(s, record{}, false) }

// Scramble returns a state with the key of s, and other content in what Step only records.
func Scramble(s State, seed uint64) State {
	e := Event{
		Attempt: uint8(seed % MaxAttempts), End: EndKind(seed % 6), Err: context.Canceled, Open: seed&1 > 0,
		Pushback: Pushback(seed % 3), Failover: seed&2 > 0, Cut: seed&4 > 0, Answers: true, Exhausted: true,
		Wait: time.Duration(seed % 2), Paid: true, Until: 1, Waits: true,
	}
	at := time.Duration(seed % 8)
	r := record{SentAt: at, Cause: Cause(seed % 4), Event: e, EndedAt: at, CutShort: seed&1 > 0}
	return rewrite(s, r, seed&2 > 0)
}

// rewrite replaces what Step only records by the content of r. Before the decision, Step reads of the
// attempts that have ended which keep their contexts, whether all were failures, and the kind of the
// better rejected answer; after it, whether the winner panicked.
func rewrite(s State, r record, set bool) State {
	s.DecidedAt, s.DeliveredAt, s.GoneAt = r.SentAt, r.SentAt, r.SentAt
	s.GaveUp, s.Committed, s.NotReplayable = set, set, set
	s.Err, s.Panicked, s.TurnedAway, s.Failovers, s.Rejected, s.LoserPanics = nil, false, 0, 0, 0, 0
	failures := true
	for _, a := range s.Attempts {
		failures = failures && (a.Kind != Ended || a.End == NonFatal)
	}
	for n := range s.Attempts {
		was, a := s.Attempts[n].Event, r
		a.Kind = was.Kind
		switch won := n == s.Winner; {
		case was.Kind != Ended:
			a.Event = was
		case s.decided && won && was.End != Panicked:
			a.End = OK
		case s.decided && won:
			a.End = Panicked
		case s.decided:
		case won && was.End.IsRejected():
			a.End, a.Open = was.End, was.Open
		case failures:
			a.End, a.Open = NonFatal, was.Open
		default:
			a.End, a.Open = Final, was.Open
		}
		s.Attempts[n] = a
	}
	return s
}

// HedgeContext returns the context of hedge n of a race under ctx, and a function that lets it win.
func HedgeContext(ctx context.Context, n int, primaryInFlight bool) (*Context, func()) {
	x := &runner{Race: &Race{ctx: ctx}}
	x.stepped.L = &x.mu
	c := x.hedgeContext(rpc.Marks(ctx, n, primaryInFlight))
	return c, func() { c.hedge.won.Store(true) }
}
