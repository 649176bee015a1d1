// Package guard holds hedges back where they use up a rate limit that other calls need. A server
// reports an exceeded limit with RESOURCE_EXHAUSTED. The guard acts on no other failure: a call
// that fails with another status, or at its deadline, is no evidence against hedges.
package guard

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
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
	Target  *Shared      // Target.mu guards own
	Tickets sketch.Draws // a hedge may be sent if its ticket is below the share
	own     hold
}

// Traffic is the total number of calls of the method and of its target. A costly call of the target
// may count as several.
type Traffic struct{ Method, Target float64 }

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

// Sent reports that a hedge was sent at now.
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

// Gate is the guard of one method as a gate and an observer.
type Gate struct {
	Guard   *Guard
	Traffic func() Traffic
}

// Admit admits the guard's share of hedges, and every hedge that its call needs in order not to
// fail. A hedge keeps its ticket when it is considered again.
func (g *Gate) Admit(d *feature.Due) feature.Verdict {
	if !slices.ContainsFunc(d.Report.Attempts[:d.N], func(a race.AttemptReport) bool {
		return !a.HasEnded ||
			a.End != race.NonFatal
	}) {
		return feature.Pass
	}
	share := g.Guard.Share(d.Now, g.Traffic())
	if share < 1 && d.Ticket.Of != d.N {
		d.Ticket = feature.Ticket{Of: d.N, Value: g.Guard.Tickets.Next()}
	}
	return feature.Later(stats.Guarded).If(share < 1 && d.Ticket.Value >= share)
}

func (g *Gate) Admitted(d *feature.Due) { g.Guard.Sent(d.Now) }

// Ended reports RESOURCE_EXHAUSTED to the guard, except of hedges that the server turned away with
// a pushback.
func (g *Gate) Ended(_ *feature.CallState, e *feature.End) {
	if e.Race == nil && e.Err == nil { // the common case
		return
	}
	primary, hedge := status.Code(e.Err) == codes.ResourceExhausted, false
	if r := e.Race; r != nil {
		primary = ranOut(r.Attempts[0])
		hedge = slices.ContainsFunc(r.Attempts[1:r.Hedges+1],
			func(a race.AttemptReport) bool { return a.Pushback == race.NoPushback && ranOut(a) })
	}
	if primary || hedge {
		g.Guard.Exhausted(time.Now(), g.Traffic(), !primary)
	}
}

func ranOut(a race.AttemptReport) bool {
	return a.HasEnded && !a.CutShort && status.Code(a.Err) == codes.ResourceExhausted
}
