// Package guard holds hedges back where a server limits them: a [Guard] where hedges use up a rate
// limit that other calls need, [Resets] where a server counts the resets of losers, and [Throttle]
// where many attempts fail. docs/guard.md describes the guard.
package guard

import (
	"cmp"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
// zero Guard admits every hedge. Target must be set before the first use.
type Guard struct {
	Target  *Shared // Target.mu guards own
	tickets sketch.Draws
	own     hold
}

// Traffic is the total number of calls of the method, and of its target.
type Traffic struct{ Method, Target float64 }

// Ticket is the number from 0 to 1 that a hedge has drawn. The hedge may be sent if the number is below
// the share. The zero Ticket has not been drawn.
type Ticket struct {
	drawn bool
	value float64
}

// Watches reports whether the guard may hold hedges back. Otherwise Admit need not be called.
func (m *Guard) Watches() bool { return m.own.watching.Load() || m.Target.whole.watching.Load() }

// Admit reports whether a hedge may be sent at now. A hedge that is retried keeps its ticket k.
func (m *Guard) Admit(now time.Time, t Traffic, k *Ticket) bool {
	share := m.State(now, t).Share
	if share < 1 && !k.drawn {
		*k = Ticket{true, m.tickets.Next()}
	}
	return share >= 1 || k.value < share
}

// State returns the share at now, with the reason and the start of a reduction: the method's or the
// target's, whichever is lower.
func (m *Guard) State(now time.Time, t Traffic) stats.Guard {
	whole := m.lock(now, t)
	defer m.Target.mu.Unlock()
	g, of := m.own.state(now), whole.state(now)
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
	caused := m.own.exhausted(now, t.Method, alone, true)
	if caused {
		m.Target.by, m.Target.at = m, now
	}
	twoFailed := caused && by != m && within(now, at, settle)
	whole.exhausted(now, t.Target, alone, twoFailed)
}

// within reports whether t was at most d before now. It is false for the zero t.
func within(now, t time.Time, d time.Duration) bool { return !t.IsZero() && now.Sub(t) <= d }

const (
	recovery      = 30 * time.Second // of the share from 0 to 1, after a pause
	settle        = 10 * time.Second // for which a hedge may cause failures; the shortest pause is half of it
	signFailures  = 10               // failures within about settle that are a sign against hedges
	minCount      = time.Minute      // shortest pause that counts failures
	maxCount      = 6 * time.Minute  // longest pause; after a sign, the time in which one failure is a sign
	expectedTimes = 1.25             // ratio of the expected rate to the rate in pauses
	rateWindow    = 30 * time.Minute // memory of the failures that lower the expected rate
)

// hold is the share of hedges of a method, or of a whole target, that RESOURCE_EXHAUSTED leaves.
// The zero hold has seen no failure. Shared.mu guards every field but watching.
type hold struct {
	watching   atomic.Bool // false: every hedge passes
	sent, last time.Time   // the last hedge; the last advance
	calls      float64     // at the last advance

	missing float64 // 1 minus the share
	since   time.Time

	// Failures in a pause of minCount or more are not due to hedges. They set the expected rate,
	// and an expected failure has no effect: see docs/guard.md.
	noted, seen           frequency // unexplained failures; all failures
	begun                 time.Time // start of the last pause, which is a sign
	length                time.Duration
	failures, callsBefore float64                               // failures in the pause; calls before it
	counted               bool                                  // the pause has set the expected rate
	expected              struct{ rate, credit, depth float64 } // failures per call, saved, and saved at most
}

func (h *hold) pausing(now time.Time) bool { return now.Sub(h.begun) < h.length }

func (h *hold) state(now time.Time) stats.Guard {
	switch {
	case h.missing == 0:
		return stats.Guard{Share: 1}
	case !h.pausing(now):
		return stats.Guard{Share: 1 - h.missing, Since: h.since, Reason: stats.GuardExhausted}
	case h.length < minCount:
		return stats.Guard{Since: h.since, Reason: stats.GuardExhausted}
	}
	return stats.Guard{Since: h.since, Reason: stats.GuardCounting}
}

// exhausted records a RESOURCE_EXHAUSTED and reports whether hedges may be its cause. alone marks a
// failure of a hedge without one of its primary. A failure can be a sign only if mayPause is set. A sign
// begins a pause, or lowers the share further in its first settle.
func (h *hold) exhausted(now time.Time, calls float64, alone, mayPause bool) bool {
	h.seen.note(now, calls, rateWindow)
	h.expected.rate = min(h.expected.rate, h.seen.failures/max(1, h.seen.calls))
	pausing, since := h.pausing(now), now.Sub(h.begun)
	switch {
	case pausing && since > settle:
		h.failures++
		return false
	case !pausing && !within(now, h.sent, settle):
		return false
	case !pausing && h.expected.credit >= 1:
		h.expected.credit--
		return false
	}
	h.noted.note(now, calls, settle)
	if !mayPause || !alone && h.missing == 0 && h.noted.failures < signFailures && since > maxCount {
		return true
	}
	if !pausing {
		h.begun, h.length, h.failures, h.callsBefore, h.counted = now, settle/2, 0, calls, false
		if since <= maxCount { // long enough to count the failures of one interval between signs
			h.length = min(max(since+2*settle, minCount), maxCount)
		}
	}
	if h.missing == 0 {
		h.since = now
	}
	h.missing, h.noted.failures = 1-(1-h.missing)*math.Exp2(-h.noted.failures), 0
	h.watching.Store(true)
	return true
}

// advance brings h to now: the share recovers, expected failures accrue, and a pause may end.
func (h *hold) advance(now time.Time, calls float64) {
	if !now.After(h.last) {
		return
	}
	h.expected.credit = min(h.expected.credit+expectedTimes*h.expected.rate*max(0, calls-h.calls), h.expected.depth)
	after := now.Sub(h.begun) - h.length // since the end of the pause
	h.missing = max(h.missing-min(now.Sub(h.last), max(after, 0)).Seconds()/recovery.Seconds(), 0)
	if after >= 0 && h.length >= minCount && !h.counted {
		// The calls of the counted part of the pause, assuming a steady rate: advance may run much
		// later.
		during := (calls - h.callsBefore) * (h.length - settle).Seconds() / now.Sub(h.begun).Seconds()
		h.expected.rate = h.failures / max(during, 1)
		h.expected.credit, h.expected.depth, h.counted = min(h.failures, signFailures/2), 2*h.failures, true
	}
	h.watching.Store(h.missing > 0)
	h.last, h.calls = now, calls
}

// frequency is the recent share of calls that failed, with exponentially fading memory, as of the
// last failure.
type frequency struct {
	failures, calls, lastCalls float64
	last                       time.Time
}

// note records a failure. A failure of age memory counts 1/e.
func (f *frequency) note(now time.Time, calls float64, memory time.Duration) {
	gap := max(now.Sub(f.last), 0).Seconds() / memory.Seconds()
	f.calls = f.calls*math.Exp(-gap) + max(0, calls-f.lastCalls)*min(1, 1/gap)
	f.failures, f.last, f.lastCalls = f.failures*math.Exp(-gap)+1, now, calls
}

// HedgeLimit is WithHedgeLimit: at most N hedges in any interval of Per.
type HedgeLimit struct {
	N   int
	Per time.Duration
}

// cause is the way in which resets may have ended a connection.
type cause int

const (
	withReason cause = iota // GOAWAY with ENHANCE_YOUR_CALM
	noReason                // without a GOAWAY
	causes
)

// A learned limit begins at half of the hedges of the interval per before the cut, doubles in four
// steps, and is lifted once it reaches the hedges before the first cut. It is never below least. A
// cut after fewer than few hedges has another cause.
var rules = [causes]struct {
	per, step  time.Duration
	few, least float64
}{
	withReason: {time.Minute, 15 * time.Minute, 1 / math.E, 10},
	noReason:   {time.Second, time.Minute, 5, 2},
}

// A cut without a reason sets a limit only within a step of the last one, or of the end of its limit:
// processes crash, too. A cut while a limit leaves few hedges shows another cause; cuts without a
// reason then set no limit for cleared.
const cleared = 30 * time.Minute

// Resets bounds the hedges of one target at a server that counts resets: see stats.Resets. The zero
// Resets has no limit. It is safe for concurrent use.
type Resets struct {
	mu      sync.Mutex
	option  *HedgeLimit // WithHedgeLimit; nil: none
	learned [causes]learned
	level   float64   // of the token bucket that enforces the limits
	at      time.Time // of level and sent
	trusts  time.Time // until then cuts without a reason set no limit
}

// learned is the limit that cuts of one cause have set.
type learned struct {
	cutAt  time.Time // of the last cut, even if it set no limit
	before float64   // hedges of the interval per before the last cut; 0: the cut set no limit
	top    float64   // hedges of the interval per before the first cut of the series
	sent   float64   // hedges of the last interval per, with exponentially fading memory
}

// SetLimit sets the limit of WithHedgeLimit; nil for none.
func (r *Resets) SetLimit(l *HedgeLimit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.option = l
}

// limit returns the maximum number of hedges in the cause's interval per, or 0 without a limit.
// r.mu must be held.
func (r *Resets) limit(c cause, now time.Time) float64 {
	l := &r.learned[c]
	n := l.before * math.Exp2(float64(now.Sub(l.cutAt)/rules[c].step)/4-1)
	if n >= l.top {
		return 0
	}
	return max(math.Floor(n), rules[c].least)
}

// lifted returns the end of the learned limit, or the time of the last cut if it set none. r.mu
// must be held.
func (r *Resets) lifted(c cause) time.Time {
	l := &r.learned[c]
	if l.before == 0 {
		return l.cutAt
	}
	return l.cutAt.Add(rules[c].step * time.Duration(math.Ceil(4+4*math.Log2(l.top/l.before))))
}

// advance brings level and sent to now. Without a limit, level is +Inf. r.mu must be held.
func (r *Resets) advance(now time.Time) {
	burst, rate := math.Inf(1), 0.0
	limit := func(n float64, per time.Duration) { // half of n is the burst, and the other half is earned in the interval
		b := max(math.Floor(n/2), 1)
		rate = min(max(n-b, 1)/per.Seconds(), cmp.Or(rate, math.Inf(1)))
		burst = min(burst, b)
	}
	if r.option != nil {
		limit(float64(r.option.N), r.option.Per)
	}
	passed := max(now.Sub(r.at), 0) // calls come in any order
	for c := range causes {
		if n := r.limit(c, now); n > 0 {
			limit(n, rules[c].per)
		}
		r.learned[c].sent *= math.Exp(-passed.Seconds() / rules[c].per.Seconds())
	}
	if passed > 0 {
		r.at = now
	}
	r.level = min(r.level+passed.Seconds()*rate, burst)
	if math.IsInf(burst, 1) {
		r.level = burst
	}
}

// count adds n to the hedges sent. r.mu must be held.
func (r *Resets) count(n float64) {
	r.level -= n
	for c := range r.learned {
		r.learned[c].sent = max(r.learned[c].sent+n, 0)
	}
}

// Admit takes a reset for the loser of a hedge, or returns false if none is left.
func (r *Resets) Admit(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	if r.level < 1 {
		return false
	}
	r.count(1)
	return true
}

// Refund returns the reset of a hedge that was not sent, or that its server turned away.
func (r *Resets) Refund() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(-1)
}

// NoteFailure records that an attempt failed with err. It reports whether hedges may be the cause: the
// connection was cut, and hedges were sent in the minute before. The text of err may be relayed, so the
// consequences are mild: fewer hedges for a while, and the next attempt of the call is due at once.
func (r *Resets) NoteFailure(err error, now time.Time) (byHedges bool) {
	c, cut := causeOf(err)
	if !cut {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	byHedges = r.learned[withReason].sent >= rules[withReason].few // of a minute
	l, limited := &r.learned[c], r.limit(c, now) > 0
	switch since := now.Sub(l.cutAt); {
	case since < rules[c].per: // the calls in flight fail together, and a limit takes effect within per
	case l.sent < rules[c].few:
		if c == noReason && limited {
			l.before, l.top, r.trusts = 0, 0, now.Add(cleared)
		}
	case c == noReason && now.Before(r.trusts):
	case c == noReason && now.Sub(r.lifted(c)) > rules[c].step:
		l.before, l.top, l.cutAt = 0, 0, now
	default:
		if !limited {
			l.top = l.sent
		}
		l.before, l.cutAt, r.level = l.sent, now, 0
	}
	return byHedges
}

// State returns the limits in force. If both causes have set one, it is the lower.
func (r *Resets) State(now time.Time) (s stats.Resets) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.option != nil {
		s.Limit, s.Per = r.option.N, r.option.Per
	}
	for c := range causes {
		n := int(r.limit(c, now) * time.Minute.Seconds() / rules[c].per.Seconds())
		if n > 0 && (s.Learned == 0 || n < s.Learned) {
			s.Learned, s.Since, s.Until = n, r.learned[c].cutAt, r.lifted(c)
		}
	}
	return s
}

// causeOf returns, for an attempt that failed with err, how its connection ended, and whether
// resets may be the reason. It reads the errors of gRPC and of net/http.
func causeOf(err error) (c cause, cut bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return 0, false
	}
	if strings.HasPrefix(strings.TrimPrefix(s.Message(), `connection error: desc = "`), "error reading from server: ") ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return noReason, true
	}
	code, data := goAway(s.Message())
	return withReason, code == "ENHANCE_YOUR_CALM" && data != `"too_many_pings"`
}

// goAway returns the code and the quoted debug data of the GOAWAY frame in an error of gRPC or of
// net/http. The debug data, which a server chooses, comes last.
func goAway(text string) (code, data string) {
	if _, frame, ok := strings.Cut(text, ", received prior goaway: code: "); ok {
		code, data, _ = strings.Cut(frame, ", debug data: ")
	} else if _, frame, ok := strings.Cut(text, "http2: server sent GOAWAY and closed the connection; LastStreamID="); ok {
		_, frame, _ = strings.Cut(frame, ", ErrCode=")
		code, data, _ = strings.Cut(frame, ", debug=")
	}
	return code, data
}
