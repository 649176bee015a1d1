// Package guard holds hedges back where they use up a rate limit that other calls need. The server reports that with
// RESOURCE_EXHAUSTED, so the guard needs no setting. Hedges are held back for minutes at most.
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

// Shared is what the methods of one target have in common. The zero Shared has seen no failure.
type Shared struct {
	mu    sync.Mutex
	whole hold
	by    *Guard    // the method with the latest RESOURCE_EXHAUSTED that hedges may have caused
	at    time.Time // when it came
}

// Guard says how many hedges of one method may be sent as far as failures go. Its methods may be called concurrently. The zero
// Guard has seen no failure, and lets every hedge pass; Target must be set before failures are reported. A time that is before the
// latest counts as the latest.
type Guard struct {
	Target  *Shared      // whose mu guards own
	Tickets sketch.Draws // for hedges: one may be sent if its number is below the share
	own     hold
}

// Traffic counts all calls of the method and of its target. A costly call of a target may count as several.
type Traffic struct{ Method, Target float64 }

// Share returns the share of due hedges that may be sent at now, 0 to 1.
func (m *Guard) Share(now time.Time, t Traffic) float64 {
	if !m.own.watching.Load() && !m.Target.whole.watching.Load() {
		return 1
	}
	return m.State(now, t).Share
}

// State returns what Share is at now, since when, and why.
func (m *Guard) State(now time.Time, t Traffic) stats.Guard {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	g, of := m.own.state(now), whole.state(now)
	// Methods may share a rate limit that m has not met yet.
	if of.Share < g.Share {
		return of
	}
	return g
}

// lock locks the target, brings all to now, and returns the hold of the target.
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

// Exhausted says that an attempt failed with RESOURCE_EXHAUSTED at now. If it was a hedge whose primary did not fail with
// it, alone is true. If both failed, it must be said once, with false.
func (m *Guard) Exhausted(now time.Time, t Traffic, alone bool) {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	by, at := m.Target.by, m.Target.at
	caused := m.own.exhausted(now, t.Method, alone, true) && m.own.seen.comparable(&whole.seen)
	if caused {
		m.Target.by, m.Target.at = m, now
	}
	whole.exhausted(now, t.Target, alone, caused && by != m && within(now, at, settle)) // of several methods
}

// within reports whether t was at most d before now. A zero t was never.
func within(now, t time.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t) <= d }

// Gate is the gate and the observer of one method.
type Gate struct {
	Guard   *Guard
	Traffic func() Traffic // so far
}

// Admit lets the guard's share of hedges pass, and each one without which its call fails. A hedge keeps its ticket when it is
// considered again.
func (g *Gate) Admit(d *feature.Due) feature.Verdict {
	if !slices.ContainsFunc(d.Report.Attempts[:d.N], func(a race.AttemptReport) bool { return !a.HasEnded || a.End != race.NonFatal }) {
		return feature.Pass
	}
	share := g.Guard.Share(d.Now, g.Traffic())
	if share < 1 && d.Ticket.Of != d.N {
		d.Ticket = feature.Ticket{Of: d.N, Value: g.Guard.Tickets.Next()}
	}
	return feature.Later(stats.Guarded).If(share < 1 && d.Ticket.Value >= share)
}

func (g *Gate) Admitted(d *feature.Due) { g.Guard.Sent(d.Now) }

// Ended notes what failed. A server that turns hedges away, and says so, needs no guard.
func (g *Gate) Ended(_ *feature.CallState, e *feature.End) {
	if e.Race == nil && e.Err == nil { // most calls end so
		return
	}
	primary, hedge := status.Code(e.Err) == codes.ResourceExhausted, false
	if r := e.Race; r != nil {
		primary, hedge = ranOut(r.Attempts[0]), slices.ContainsFunc(r.Attempts[1:r.Hedges+1], func(a race.AttemptReport) bool { return a.Pushback == race.NoPushback && ranOut(a) })
	}
	if primary || hedge {
		g.Guard.Exhausted(time.Now(), g.Traffic(), !primary)
	}
}

func ranOut(a race.AttemptReport) bool {
	return a.HasEnded && !a.CutShort && status.Code(a.Err) == codes.ResourceExhausted
}
