// Package guard holds hedges back where a server limits them: a [Guard] where hedges use up a rate
// limit that other calls need, and [Resets] where a server counts the resets of losers.
//
// A server reports an exceeded rate limit with RESOURCE_EXHAUSTED. The guard acts on no other
// failure: a call that fails with another status, or at its deadline, is no evidence against hedges.
package guard

import (
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Shared is the state that the methods of one target share. The zero Shared has seen no failure.
type Shared struct {
	mu    sync.Mutex
	whole hold
	by    *Guard    // the method with the latest RESOURCE_EXHAUSTED that hedges may have caused
	at    time.Time // when it came
}

// Guard decides which share of one method's hedges may be sent. It is safe for concurrent use. The
// zero Guard has seen no failure and admits every hedge. Target must be set before the first use.
// A time before the latest reported time counts as the latest.
type Guard struct {
	Target  *Shared // Target.mu guards own
	tickets sketch.Draws
	own     hold
}

// Traffic is the total number of calls of the method and of its target. A costly call of the target
// may count as several.
type Traffic struct{ Method, Target float64 }

// Ticket is the number that a hedge has drawn. The hedge may be sent if the number is below the
// share. The zero Ticket is of no hedge.
type Ticket struct {
	hedge int
	value float64
}

// Admit reports whether hedge n of a call may be sent at now: the guard admits its share of hedges.
// The call keeps the ticket k, so that a hedge that is held back keeps its draw.
func (m *Guard) Admit(now time.Time, t Traffic, n int, k *Ticket) bool {
	share := m.Share(now, t)
	if share < 1 && k.hedge != n {
		*k = Ticket{n, m.tickets.Next()}
	}
	return share >= 1 || k.value < share
}

// Share returns the share of due hedges that may be sent at now, 0 to 1.
func (m *Guard) Share(now time.Time, t Traffic) float64 {
	if !m.own.watching.Load() && !m.Target.whole.watching.Load() {
		return 1
	}
	return m.State(now, t).Share
}

// State returns the share at now, with the reason and the start of a reduction.
func (m *Guard) State(now time.Time, t Traffic) stats.Guard {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	g, of := m.own.state(now), whole.state(now)
	// Methods may share a rate limit that m has not reached yet.
	if of.Share < g.Share {
		return of
	}
	return g
}

// lock locks m.Target.mu, advances the method and the target to now, and returns the target's hold.
func (m *Guard) lock(now time.Time, t Traffic) *hold {
	m.Target.mu.Lock()
	m.own.advance(now, t.Method)
	m.Target.whole.advance(now, t.Target)
	return &m.Target.whole
}

func (m *Guard) Sent(now time.Time) {
	m.Target.mu.Lock()
	m.own.sent, m.Target.whole.sent = now, now
	m.Target.mu.Unlock()
}

// Exhausted reports that an attempt failed with RESOURCE_EXHAUSTED at now. alone marks a hedge of a
// primary that did not fail with it. If both failed, Exhausted must be called once, with false.
func (m *Guard) Exhausted(now time.Time, t Traffic, alone bool) {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	by, at := m.Target.by, m.Target.at
	caused := m.own.exhausted(now, t.Method, alone, true) && m.own.seen.comparable(&whole.seen)
	if caused {
		m.Target.by, m.Target.at = m, now
	}
	whole.exhausted(now, t.Target, alone, caused && by != m && within(now, at, settle)) // two methods failed
}

// within reports whether t was at most d before now. It is false for the zero t.
func within(now, t time.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t) <= d }
