// Package race runs the attempts of one call against each other: a primary on the caller's goroutine and,
// when it is slow, hedges on goroutines of their own. Exactly one attempt decides the call. The others are
// cancelled the moment it does, and nothing they produce is seen by the caller.
//
// The package knows nothing about replies, streams or budgets. An [Entrant] makes the attempts, a [Policy]
// says when a hedge may go out and what ends the race; unary calls, streams and plain functions share it.
package race

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/wire"
)

// Policy decides about one call and learns from it. NotReplayable, Admit, Unsent, Next, Final and Failed are called with
// the race's lock held, so they must not block and must not call back into the race.
type Policy interface {
	// NotReplayable says that the call's request cannot be sent again, so that no hedge is due any more.
	NotReplayable()
	// Admit is asked when hedge n is due, 1 being the first. It answers true to have it sent; otherwise the
	// race asks again after the given time, or never when that is 0.
	Admit(n int) (send bool, again time.Duration)
	// Unsent says that hedge n, which was admitted, was not sent: it could not be made.
	Unsent(n int)
	// Next is how long after a hedge the one after it is due; false says that there is none.
	Next() (time.Duration, bool)
	// Final reports whether hedge n, or the primary when n is 0, ends the race by ending with err.
	Final(n int, err error) bool
	// Heeds reports whether Failed and Successive are of interest for a call whose primary fails before any hedge
	// was due. Otherwise such a call ends at once.
	Heeds() bool
	// Failed is told of every attempt that fails, with its trailer, while the race goes on and its caller waits. If
	// more, the next hedge is due that long from now, instead of when it was, and the race goes on until then even
	// if no attempt is in flight.
	Failed(err error, trailer metadata.MD) (due time.Duration, more bool)
	// Successive reports whether a call whose attempts have all failed ends with the last failure; otherwise with
	// the primary's.
	Successive() bool
	// Ended says that the primary has just ended with err, of its own accord or the caller's.
	Ended(err error)
	// CutShort says that the primary had not answered at the given time, when a hedge won.
	CutShort(at time.Time)
	// Won says that a hedged call ended with the outcome err of hedge n, or of the primary when n is 0.
	Won(n int, err error)
	// Hedged says how long after it was sent a hedge won with err, or was cancelled because another attempt did.
	Hedged(after time.Duration, won bool, err error)
	// LoserPanicked says that an attempt panicked after the race was over.
	LoserPanicked()
}

// Entrant makes the attempts of one call.
type Entrant interface {
	// Primary makes the primary attempt and waits for its outcome. It runs on the caller's goroutine.
	Primary() error
	// Replayable reports whether the request can be sent again. It is asked whenever a hedge is due.
	Replayable() bool
	// Hedge prepares hedge n; nil if that turns out to be impossible. An attempt that wins may go on after its Run, as a
	// stream does; cancel then frees its context.
	//
	// The caller is inside its call until Replayable and Hedge return, so they may read what the caller owns; what Hedge
	// returns must not. A call that is decided meanwhile waits for them before it returns, so they should be quick. Nothing
	// else waits. They never overlap.
	Hedge(n int, cancel context.CancelCauseFunc) Attempt
	// Trailer is what the primary, which has failed, had in its trailer; nil if that is not known.
	Trailer() metadata.MD
}

// Attempt is one hedge, ready to run.
type Attempt interface {
	// Run makes the attempt under ctx and waits for its outcome.
	Run(ctx context.Context) error
	// Trailer is what the attempt, whose Run has failed, had in its trailer; nil if that is not known.
	Trailer() metadata.MD
}

// ErrLost is the cause, in the sense of [context.Cause], with which the context of a losing attempt ends.
var ErrLost = errors.New("hedge: another attempt of the call was faster")

// Outcome is how a race ended.
type Outcome struct {
	// Winner is the hedge that decided the call; nil is the primary.
	Winner Attempt
	// Release frees the winner's context; nil when the primary decided the call.
	Release context.CancelCauseFunc
	// Err is the deciding attempt's error.
	Err error
	// Untouched says that no hedge was ever due. Nothing refers to the Race then, and it may run again.
	Untouched bool
}

// Race is the state of one race. The zero value is ready for one Run, and for another when Run's outcome says
// so.
type Race struct {
	// Shared says that hedges read memory of the caller's all their life. Run then waits for losers to unwind
	// before it returns, where it otherwise leaves that to them. An Entrant may set it in Replayable.
	Shared bool

	ctx           context.Context
	cancelPrimary context.CancelCauseFunc
	policy        Policy
	entrant       Entrant
	fire          func() // due, bound once in the life of a Race that is used again

	mu      sync.Mutex
	timer   *time.Timer
	fired   bool      // a hedge has been due
	next    time.Time // no hedge before; a timer that fires earlier was set anew meanwhile
	awaited bool      // the race goes on until the next hedge is due, whatever is in flight
	hedges  []*hedge
	running int           // hedges that have not ended
	over    bool          // decided: nothing is sent any more and no later outcome counts
	failed  bool          // the primary has ended without ending the race
	decided chan struct{} // closed when over; made only for a caller that waits for hedges
	unwound chan struct{} // closed when running falls to 0; made only for a caller that waits for losers

	preparing bool          // a hedge is being prepared, without the lock
	missed    bool          // another came due meanwhile
	prepared  chan struct{} // closed when preparing ends; made only for a caller that waits for that

	last   *hedge // the hedge that failed last; nil if the primary failed after it
	winner *hedge
	err    error     // the winner's
	at     time.Time // when the winner won
	crash  *crash
}

type hedge struct {
	attempt Attempt
	n       int
	sent    time.Time
	err     error // of one that has failed
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// Run makes the primary attempt and sends the first hedge after delay, further ones as the policy says. ctx is
// the caller's context, the parent of every hedge's; cancel ends the primary attempt, which must then return
// promptly. Run returns when the call is decided and the primary has returned.
func (r *Race) Run(ctx context.Context, cancel context.CancelCauseFunc, delay time.Duration, p Policy, e Entrant) Outcome {
	r.ctx, r.cancelPrimary, r.policy, r.entrant = ctx, cancel, p, e

	if r.fire == nil {
		r.fire = r.due
	}
	// Under the lock, because a timer that fires at once must not find r.timer unset.
	r.mu.Lock()
	r.timer = time.AfterFunc(delay, r.fire)
	r.mu.Unlock()

	returned := false
	defer func() {
		if !returned { // the primary panicked: the caller unwinds, and no hedge may outlive it
			r.abandon()
		}
	}()
	err := e.Primary()
	returned = true
	if (err == nil || !p.Heeds()) && r.endUntouched() {
		p.Ended(err)
		return Outcome{Err: err, Untouched: true}
	}
	return r.primaryEnded(err)
}

// endUntouched ends a race in which no hedge was ever due, as most are, and reports whether it was one.
func (r *Race) endUntouched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fired || !r.timer.Stop() {
		return false
	}
	r.ctx, r.cancelPrimary, r.policy, r.entrant, r.timer = nil, nil, nil, nil, nil
	return true
}

// primaryEnded settles the race once the primary has returned err.
func (r *Race) primaryEnded(err error) Outcome {
	var trailer metadata.MD
	if err != nil {
		trailer = r.entrant.Trailer()
	}
	r.mu.Lock()
	if !r.over {
		r.last = nil
		r.failed = !r.settles(0, err, trailer)
		r.over = !r.failed || r.running == 0 && !r.awaited
	}
	if !r.over {
		// A hedge is in flight, or is to come, and may still turn this failure into a success.
		r.decided = make(chan struct{})
		r.mu.Unlock()
		select {
		case <-r.decided:
		case <-r.ctx.Done():
		}
		r.mu.Lock()
		r.conclude()
	}
	r.awaitPrepared()
	r.timer.Stop()
	hedges, winner, crashed := r.hedges, r.winner, r.crash
	r.mu.Unlock()
	if len(hedges) > 0 {
		r.learn(hedges, winner)
	}

	for _, h := range hedges {
		if h != winner {
			h.cancel(ErrLost)
		}
	}
	if r.Shared && len(hedges) > 0 {
		r.awaitLosers()
	}

	switch {
	case crashed != nil:
		crashed.surface()
		return Outcome{} // not reached
	case winner == nil:
		r.policy.Ended(err)
		if len(hedges) > 0 {
			r.policy.Won(0, err)
		}
		return Outcome{Err: err}
	default:
		if err == nil || r.failed { // a near tie, so that its latency is known after all; or it had failed before
			r.policy.Ended(err)
		} else {
			r.policy.CutShort(r.at)
		}
		r.policy.Won(winner.n, r.err)
		return Outcome{Winner: winner.attempt, Release: winner.cancel, Err: r.err}
	}
}

// learn tells the policy what became of hedges in a race that is over.
func (r *Race) learn(hedges []*hedge, winner *hedge) {
	end := r.at // when a hedge won, or of Commit
	if end.IsZero() {
		end = time.Now()
	}
	for _, h := range hedges {
		if h.err == nil {
			r.policy.Hedged(end.Sub(h.sent), h == winner, r.err)
		}
	}
}

// due runs on the timer's goroutine, which becomes the goroutine of the hedge that it sends.
func (r *Race) due() {
	h := &hedge{}
	returned := false
	defer func() {
		if !returned {
			r.crashed(h, newCrash(recover()))
		}
	}()
	if r.launch(h) {
		r.hedgeEnded(h, h.attempt.Run(h.ctx))
	}
	returned = true
}

// launch enters h into the race if the policy admits it, and arms the timer for what comes after. It prepares the hedge
// without the lock, as that takes longer the larger the request is. Meanwhile the call may be decided.
func (r *Race) launch(h *hedge) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired = true
	if r.preparing {
		r.missed = true
		return false
	}
	if !r.isDue() {
		return false
	}
	r.preparing = true
	defer r.endPreparing()
	replayable := false
	r.unlocked(func() { replayable = r.entrant.Replayable() })
	if !r.isDue() || !r.admit(h, replayable) {
		return false
	}
	r.unlocked(func() { h.attempt = r.entrant.Hedge(h.n, h.cancel) })
	if h.attempt == nil {
		r.unsent(h)
		return false
	}
	if r.over {
		r.leave(false)
		return false
	}
	return true
}

// isDue reports whether a hedge is due, with the lock held, and otherwise sees to it that it will be.
func (r *Race) isDue() bool {
	if r.over {
		return false
	}
	if wait := time.Until(r.next); wait > 0 {
		r.timer.Reset(wait)
		return false
	}
	return true
}

// admit enters h if the policy admits it, with the lock held. What ends the race from then on cancels h.
func (r *Race) admit(h *hedge, replayable bool) bool {
	r.awaited = false
	n := len(r.hedges) + 1
	var send bool
	var again time.Duration
	if replayable {
		send, again = r.policy.Admit(n)
	} else {
		r.policy.NotReplayable()
	}
	if !send {
		if r.failed && r.running == 0 { // nothing is left to wait for
			r.conclude()
		} else if again > 0 {
			r.schedule(again)
		}
		return false
	}
	h.n, h.sent = n, time.Now()
	h.ctx, h.cancel = context.WithCancelCause(wire.HedgeContext(r.ctx, n))
	r.hedges = append(r.hedges, h)
	r.running++
	if next, more := r.policy.Next(); more {
		r.schedule(next)
	}
	return true
}

// unsent takes h, which could not be made, out of the race again, with the lock held.
func (r *Race) unsent(h *hedge) {
	r.policy.Unsent(h.n)
	r.policy.NotReplayable()
	if !r.over { // r.hedges does not change any more when the race is over
		r.hedges = r.hedges[:len(r.hedges)-1]
		r.awaited = false
	}
	h.cancel(ErrLost)
	r.leave(false)
}

// unlocked runs f without the lock, which is held.
func (r *Race) unlocked(f func()) {
	r.mu.Unlock()
	defer r.mu.Lock()
	f()
}

// endPreparing wakes the caller of a call that was decided meanwhile, and makes up for a hedge that came due, with the lock
// held.
func (r *Race) endPreparing() {
	r.preparing = false
	if r.prepared != nil {
		close(r.prepared)
	}
	if r.missed && !r.over {
		r.timer.Reset(max(0, time.Until(r.next)))
	}
	r.missed = false
}

// awaitPrepared returns when no hedge is being prepared, with the lock held and the race over: until then one may be
// reading what the caller owns.
func (r *Race) awaitPrepared() {
	if r.preparing {
		r.prepared = make(chan struct{})
		r.unlocked(func() { <-r.prepared })
	}
}

// schedule has the next hedge come due in d, and not before, with the lock held.
func (r *Race) schedule(d time.Duration) {
	r.next = time.Now().Add(d)
	r.timer.Reset(d)
}

// settles takes into account that hedge n, or the primary when n is 0, ended with err, and reports whether that ends
// the race. The lock is held and the race not over.
func (r *Race) settles(n int, err error, trailer metadata.MD) bool {
	if err == nil || r.ctx.Err() != nil {
		return true
	}
	due, more := r.policy.Failed(err, trailer)
	if r.policy.Final(n, err) {
		return true
	}
	_, left := r.policy.Next()
	if r.awaited = more && left; r.awaited {
		r.schedule(due)
	}
	return false
}

// conclude ends a race that nothing can decide any more, with the lock held. If its attempts have failed one after
// the other, the last of them decides.
func (r *Race) conclude() {
	if r.over {
		return
	}
	if r.last != nil && r.policy.Successive() {
		r.winner, r.err, r.at = r.last, r.last.err, time.Now()
	}
	r.end()
}

// end ends the race and wakes a caller that waits for that, with the lock held.
func (r *Race) end() {
	r.over = true
	if r.decided != nil {
		close(r.decided)
	}
}

// hedgeEnded takes the outcome of h into account. It runs on h's goroutine.
func (r *Race) hedgeEnded(h *hedge, err error) {
	var trailer metadata.MD
	if err != nil {
		trailer = h.attempt.Trailer()
	}
	r.mu.Lock()
	// What the end of the caller's context cut short decides nothing: the caller sees that end by itself.
	counts := !r.over && (err == nil || r.ctx.Err() == nil)
	won := counts && r.settles(h.n, err, trailer)
	switch {
	case won:
		r.winner, r.err, r.at = h, err, time.Now()
	case counts:
		r.last, h.err = h, err
	}
	r.leave(won)
	r.mu.Unlock()
	if won {
		r.cancelLosers(h)
	} else {
		h.cancel(ErrLost)
	}
}

// leave takes one hedge out of the race, with the lock held; decides says that its outcome ends the race. The
// failure of the last attempt in flight ends it too.
func (r *Race) leave(decides bool) {
	r.running--
	switch {
	case r.over:
	case decides:
		r.end()
	case r.failed && r.running == 0 && !r.awaited:
		r.conclude()
	}
	if r.running == 0 && r.unwound != nil {
		close(r.unwound)
	}
}
