// Package guard holds hedges back where they make calls fail: where they use up a rate limit that other calls need, or load
// a server that cannot bear it. It decides by what happens, and needs no setting.
//
// There are two signs. One is RESOURCE_EXHAUSTED, of a hedge whose primary did not fail with it, or of many calls at once: see
// quota. The other is that fewer calls fail in short periods without hedges: see trial.
//
// A guard misjudges at times. So a pause lasts six minutes at most, the share grows back within eight, and each method is judged
// by its own calls. Where hedged calls of several methods fail about as often, the target is judged as a whole too.
package guard

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// hedged is how long after a hedge its method counts as one that is hedged.
const hedged = 10 * time.Minute

// Target is what the methods of one target have in common. The zero Target has seen no failure.
type Target struct {
	mu                sync.Mutex
	whole             judge
	exhausted, failed company
}

// Method says how many hedges of one method may be sent as far as failures go. Its methods may be called concurrently. The zero
// Method has seen no failure, and lets every hedge pass; Join must be called before failures are reported.
//
// Times are passed in. One that is before the latest counts as the latest.
type Method struct {
	target  *Target
	tickets atomic.Uint64

	own               judge // guarded by target.mu, as the next two are
	exhausted, failed member
}

// Traffic counts all calls of the method and of its target. A costly call of a target may count as several.
type Traffic struct{ Method, Target float64 }

func (m *Method) Join(t *Target) { m.target = t }

// Ticket returns a number from 0 to 1 for a hedge: the hedge may be sent if the number is below the share. Numbers that
// follow each other are spread evenly.
func (m *Method) Ticket() float64 {
	return float64(m.tickets.Add(0x9e3779b97f4a7c15)>>11) / (1 << 53) // 2^64 times the golden ratio's fraction
}

// Share returns the share of due hedges that may be sent at now, 0 to 1.
func (m *Method) Share(now time.Time, t Traffic) float64 {
	if !m.own.watching.Load() && !m.target.whole.watching.Load() {
		return 1
	}
	m.target.mu.Lock()
	defer m.target.mu.Unlock()
	m.advance(now, t)
	if !m.reached(now) {
		return m.own.share(now)
	}
	return min(m.own.share(now), m.target.whole.share(now))
}

// reached reports whether the judgement of the target as a whole is for m too. Several methods may share a rate limit, and m
// may not have met it yet. Other failures are a reason only for methods that have some.
func (m *Method) reached(now time.Time) bool {
	whole := &m.target.whole
	return whole.why == stats.GuardExhausted || whole.quota.pause.on(now) || within(now, m.failed.last, hedged)
}

func (m *Method) Sent(now time.Time) {
	m.target.mu.Lock()
	m.own.sent, m.target.whole.sent = now, now
	m.target.mu.Unlock()
}

// Exhausted says that an attempt failed with RESOURCE_EXHAUSTED at now. If it was a hedge whose primary did not fail with
// it, alone is true. If both failed, it must be said once, with false.
func (m *Method) Exhausted(now time.Time, t Traffic, alone bool) {
	m.target.mu.Lock()
	defer m.target.mu.Unlock()
	m.advance(now, t)
	if !within(now, m.own.sent, hedged) {
		return
	}
	several := false
	if m.own.unexplained(now) {
		m.own.suspect(now, t.Method, alone)
		several = m.target.exhausted.joins(now, t, &m.exhausted, settle)
	}
	if whole := &m.target.whole; whole.unexplained(now) && several {
		whole.suspect(now, t.Target, alone)
	}
}

// Failed says that a call failed at now, as its caller saw it, with another error than RESOURCE_EXHAUSTED.
func (m *Method) Failed(now time.Time, t Traffic) {
	m.target.mu.Lock()
	defer m.target.mu.Unlock()
	m.advance(now, t)
	if !within(now, m.own.sent, hedged) {
		return
	}
	j, calls := &m.own, t.Method
	if m.target.failed.joins(now, t, &m.failed, memory) {
		j, calls = &m.target.whole, t.Target
	}
	j.trial.failed(now, calls)
	j.watch()
}

func (m *Method) advance(now time.Time, t Traffic) {
	m.own.advance(now, t.Method)
	m.target.whole.advance(now, t.Target)
}

func (m *Method) State(now time.Time, t Traffic) stats.Guard {
	m.target.mu.Lock()
	defer m.target.mu.Unlock()
	m.advance(now, t)
	own, whole := m.own.state(now), m.target.whole.state(now)
	if m.reached(now) && (whole.Share < own.Share || own.Reason == stats.GuardNone) {
		return whole
	}
	return own
}

// within reports whether t was at most d before now. A zero t was never.
func within(now, t time.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t) <= d }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Gate is the gate and the observer of one method.
type Gate struct {
	Method  *Method
	Traffic func() Traffic // so far
	// Policy says that the method has a hedgingPolicy. The hedge of a call whose attempts have failed may then be its only hope,
	// and is not for the guard.
	Policy bool
}

// Admit lets the share of hedges pass that the guard admits. However often that is asked, a hedge has one ticket.
func (g *Gate) Admit(d *feature.Due) feature.Verdict {
	if g.Policy && slices.ContainsFunc(d.Report.Attempts[:], func(a race.AttemptReport) bool { return a.Failed() }) {
		return feature.Pass
	}
	share := g.Method.Share(d.Now, g.Traffic())
	if share < 1 && d.Ticket.Of != d.N {
		d.Ticket = feature.Ticket{Of: d.N, Value: g.Method.Ticket()}
	}
	return feature.Later(stats.Guarded).If(share < 1 && d.Ticket.Value >= share)
}

func (g *Gate) Admitted(d *feature.Due) { g.Method.Sent(d.Now) }

// Quiet says that the guard looks at failures and races only.
func (g *Gate) Quiet() {}

// Ended notes which attempts failed with RESOURCE_EXHAUSTED, and whether the call failed.
func (g *Gate) Ended(_ *feature.Call, e *feature.End) {
	switch {
	case e.Race != nil:
		g.raced(e.Race)
	case e.Err == nil:
		return
	case exhausted(e.Err):
		g.Method.Exhausted(time.Now(), g.Traffic(), false)
	}
	if !fine.HasStatus(e.Err) {
		g.Method.Failed(time.Now(), g.Traffic())
	}
}

// raced notes the failures in a race. A server that turns hedges away, and says so, needs no guard.
func (g *Gate) raced(r *race.Report) {
	hedge := false
	for n := 1; n <= r.Hedges; n++ {
		hedge = hedge || r.Attempts[n].Pushback == race.NoPushback && ranOut(&r.Attempts[n])
	}
	if primary := ranOut(&r.Attempts[0]); primary || hedge {
		g.Method.Exhausted(time.Now(), g.Traffic(), !primary)
	}
}

func ranOut(a *race.AttemptReport) bool { return a.HasEnded && !a.CutShort && exhausted(a.Err) }

func exhausted(err error) bool { return err != nil && status.Code(err) == codes.ResourceExhausted }

// fine are no failures for the trials. A deadline that passes is one. RESOURCE_EXHAUSTED has a judgement of its own.
var fine = codeset.Answers | codeset.Of(codes.Canceled, codes.ResourceExhausted)
