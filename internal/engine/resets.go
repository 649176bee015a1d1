package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// resets decides for one target which losing attempts are reset on the wire, and which are left to run to their end.
//
// Servers and proxies count RST_STREAM frames since the attacks of 2023, and cut connections that send many. Most allow more
// than hedging ever sends, so resets are unlimited at first, and only counted. When a connection is cut in the wake of
// resets, they are limited. A call of a limited target runs detached while its bucket is low, so that its primary can be
// left too. What is learned is the target's, not a connection's: if a client has several connections, a server that cuts one
// of them has allowed the target several times its limit, and that is what was seen.
//
// The zero value is ready for use. All methods may be called concurrently.
type resets struct {
	limited atomic.Bool  // mode is not ResetsUnlimited; read for every call
	lastAt  atomic.Int64 // when a reset was sent last, after the engine's epoch, in nanoseconds; 0: never
	left    atomic.Int64 // losers that run to their end now

	mu     sync.Mutex
	mode   ResetMode
	seen   recent    // resets of the last minute, since the last cut
	cutAt  time.Time // when a connection was cut last in the wake of resets
	since  time.Time // when the mode or its limit changed last
	until  time.Time // when the limit ends or is raised next; zero: never
	why    string
	bucket resetBucket
	set    ResetLimit // with ResetsSet

	hold      time.Duration // until the next raise; it doubles with each
	sure      bool          // the server itself has said that it counts
	suspicion suspicion
	conns     connections
}

// ResetMode is how resets to a target are limited.
type ResetMode uint8

const (
	// ResetsUnlimited: every loser is reset.
	ResetsUnlimited ResetMode = iota
	// ResetsSuspected: none is for some time, to see whether connections are cut without resets.
	ResetsSuspected
	// ResetsLearned: a limit was learned.
	ResetsLearned
	// ResetsSet: WithResetLimit sets the limit.
	ResetsSet
)

// ResetLimit is WithResetLimit: at most N resets in any time of Per.
type ResetLimit struct {
	N   int
	Per time.Duration
}

const (
	// recentResets is how long after a reset a cut connection may be its consequence.
	recentResets = time.Minute
	// fewResets are too few for suspicion: no server that is known cuts a connection for so few.
	fewResets = 10
	// oneCut is the time within which failures are of one cut: the calls that were in flight fail at the same time.
	oneCut = 100 * time.Millisecond
	// wake is how long after a cut another one teaches nothing.
	wake = 5 * time.Second
	// firstHold is how long a learned limit holds at first, and longestHold how long in the end.
	firstHold, longestHold = 2 * time.Minute, time.Hour
	// mostLeft bounds the losers of a target that run to their end, and patience how long each may.
	mostLeft = 1000
	patience = 30 * time.Second
	// plenty is the limit, per minute, above which a limit is none.
	plenty = 60_000

	serverSays   = "the server says so: ENHANCE_YOUR_CALM"
	endInTheWake = "connections end in the wake of resets, and not without"
)

// setLimit sets the limit of WithResetLimit; nil has it be learned.
func (r *resets) setLimit(l *ResetLimit, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case l == nil && r.mode != ResetsSet, l != nil && r.mode == ResetsSet && r.set == *l:
	case l == nil:
		r.mode, r.since, r.why = ResetsUnlimited, time.Time{}, ""
		r.limited.Store(false)
	default:
		r.mode, r.set, r.since, r.why = ResetsSet, *l, now, "WithResetLimit"
		r.bucket.set(l.N, l.Per, now)
		r.limited.Store(true)
	}
}

// detaches reports whether a call that begins now must be able to leave its primary.
func (r *resets) detaches(now time.Time) bool {
	if !r.limited.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	return r.mode != ResetsUnlimited && r.bucket.low(now)
}

// spent reports whether no reset may be sent now.
func (r *resets) spent(now time.Time) bool {
	if !r.limited.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	return r.mode != ResetsUnlimited && r.bucket.tokens(now) < 1
}

// mustWaitForReset reports whether a hedge of the call must wait, because its primary, which cannot be left, could not be
// reset if the hedge won. A call that began before resets were limited waits for up to three times its delay. Then the hedge
// is sent all the same: a call whose primary hangs must not wait for the end of the limit. A call that was to run detached,
// and cannot because its attempts share the request, waits as long as there is no reset.
func (c *Call) mustWaitForReset(now time.Time) bool {
	soon := now.Sub(c.start) < 3*c.delay
	return !c.offWire && (soon || c.detached) && c.method.target.resets.spent(now)
}

// lost takes the losers of a race and returns those that are left to run to their end. Only those in may can be left. at is
// the time since the engine's epoch.
func (r *resets) lost(losers, may race.Attempts, now time.Time, at time.Duration) (left race.Attempts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	sent := 0
	for n := range race.MaxAttempts {
		switch {
		case !losers.Has(n):
		case may.Has(n) && r.mode != ResetsUnlimited && r.bucket.tokens(now) < 1 && r.left.Load() < mostLeft:
			left |= 1 << n
			r.left.Add(1)
		default:
			sent++
			r.bucket.take(now)
		}
	}
	if sent > 0 {
		if now.Unix() > r.seen.second { // once a second
			minute, second := r.seen.counts(now)
			r.suspicion.bears(resetsSeen{minute, second})
		}
		r.seen.add(sent, now)
		r.lastAt.Store(int64(max(at, 1)))
	}
	return left
}

// recently reports whether a reset was sent shortly before the given time since the engine's epoch.
func (r *resets) recently(at time.Duration) bool {
	last := time.Duration(r.lastAt.Load())
	return last > 0 && at-last <= recentResets
}

// cut says that a call that began at the given time has failed because its connection was cut. certain says that the server
// gave an excess as the reason. cut returns whether resets are to blame, as far as is known.
func (r *resets) cut(began time.Time, certain bool, now time.Time) (blamed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended(began, certain, now)
}

// used says that an attempt has used the connection from a local address to a remote one. If it replaces another that did
// not live long, that one has been closed in an orderly way: no call has failed, but it may be a consequence of resets.
func (r *resets) used(local, remote string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns.replaced(local, remote, now) {
		r.ended(now, false, now)
	}
}

// ended does what cut does. The lock must be held.
func (r *resets) ended(began time.Time, certain bool, now time.Time) (blamed bool) {
	r.advance(now)
	minute, second := r.seen.counts(now)
	seen := resetsSeen{minute, second}
	known := !r.cutAt.IsZero()
	switch {
	case known && (now.Sub(r.cutAt) < oneCut || !began.After(r.cutAt)): // by the cut that is known
		if r.sure = r.sure || certain; certain && r.mode == ResetsSuspected { // the first failure did not say so
			r.learn(r.suspicion.seen, now, serverSays)
		}
	case known && now.Sub(r.cutAt) < wake: // probably another connection, with the resets that were sent before
	case certain && minute > 0:
		r.sure = true
		r.blame(seen, now)
		r.learn(seen, now, serverSays)
	case certain, r.sure:
		return false
	case r.mode == ResetsSuspected, r.mode == ResetsLearned && r.suspicion.refutedBy(seen):
		// Connections end without resets too.
		r.suspicion.refute(now)
		r.unlimit(now)
		return false
	case minute < fewResets || r.suspicion.exonerated(now):
		return false
	case r.mode == ResetsUnlimited && !r.suspicion.add(seen, now):
		r.blame(seen, now)
		if pause := r.suspicion.pause(); pause > 0 {
			r.suspect(pause, now)
		} else {
			r.unlimit(now)
		}
	default:
		r.blame(seen, now)
		r.learn(seen, now, endInTheWake)
	}
	return true
}

// blame records a cut in the wake of resets. The connection that comes next starts with none.
func (r *resets) blame(seen resetsSeen, now time.Time) {
	r.cutAt, r.seen, r.suspicion.seen = now, recent{}, seen
}

// learn sets the limit to half of what was seen when the connection was cut, unless the user has set one.
func (r *resets) learn(seen resetsSeen, now time.Time, why string) {
	if r.mode == ResetsSet {
		return
	}
	if r.hold = 2 * r.hold; r.mode != ResetsLearned {
		r.hold = max(r.hold, firstHold)
	}
	r.hold = min(r.hold, longestHold)
	r.mode, r.since, r.until, r.why = ResetsLearned, now, now.Add(r.hold), why
	r.bucket.half(seen, now)
	r.limited.Store(true)
}

// suspect sends no resets for a while.
func (r *resets) suspect(pause time.Duration, now time.Time) {
	r.mode, r.since, r.until = ResetsSuspected, now, now.Add(pause)
	r.why = "a connection ended in the wake of resets"
	r.bucket.set(0, time.Minute, now)
	r.limited.Store(true)
}

// unlimit ends the limit.
func (r *resets) unlimit(now time.Time) {
	r.mode, r.since, r.until, r.why = ResetsUnlimited, now, time.Time{}, ""
	r.suspicion.unlimitedSince = now
	r.limited.Store(false)
}

// advance ends a suspicion, or raises a limit, whose time has come. The lock must be held.
func (r *resets) advance(now time.Time) {
	if r.until.IsZero() || now.Before(r.until) {
		return
	}
	if r.mode == ResetsSuspected {
		r.suspicion.passed(now.Sub(r.since))
		r.unlimit(now)
		return
	}
	r.hold = min(2*r.hold, longestHold)
	r.until = now.Add(r.hold)
	if r.bucket.raise(now); r.bucket.perMinute() > plenty {
		r.unlimit(now)
	}
}
