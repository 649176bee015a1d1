// Package resets bounds the hedges of a target whose server counts resets. Each hedge makes one loser, which is reset on the wire.
package resets

import (
	"cmp"
	"math"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/stats"
)

// Limit is WithResetLimit: at most N hedges in any time of Per.
type Limit struct {
	N   int
	Per time.Duration
}

// A cause is why a connection was cut: by the server's word, or as far as its end lets guess.
type cause int

const (
	said    cause = iota // GOAWAY with ENHANCE_YOUR_CALM
	silence              // the end of the connection, without a GOAWAY
	causes
)

// A learned limit begins with half of the hedges of the time per before the cut, doubles in four steps, and is lifted when it would be
// all of the hedges before the first cut. A cut after fewer hedges than few has another reason. least is the smallest limit, because
// the text of a server's own error may look like a cut.
var rules = [causes]struct {
	per, step  time.Duration
	few, least float64
}{
	said:    {time.Minute, 15 * time.Minute, 1 / math.E, 10},
	silence: {time.Second, time.Minute, 5, 2},
}

const (
	// Processes crash, and proxies close idle connections. Only the second silent cut within suspicion sets a limit. A silent cut that
	// comes although the limit left few hedges clears hedges: silent cuts set no limit for cleared.
	suspicion = time.Minute
	cleared   = 30 * time.Minute
)

// Resets bounds the hedges of one target. The zero value has no limit. All methods may be called concurrently.
type Resets struct {
	mu      sync.Mutex
	option  *Limit // WithResetLimit; nil: none
	learned [causes]learned
	level   float64   // of a token bucket, which pays for what the limits allow
	at      time.Time // of level and sent
	trusts  time.Time // until when silent cuts set no limit
}

// learned is what the cuts for one cause have shown.
type learned struct {
	cutAt  time.Time // the last one; of silence also one that set no limit
	before float64   // the hedges of the time per before it; 0: there is no limit
	top    float64   // the same, of the first cut in a row
	sent   float64   // the hedges of the last time per, with fading memory
}

// SetLimit puts WithResetLimit into force; nil means that there is no such option.
func (r *Resets) SetLimit(l *Limit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.option = l
}

// limit returns how many hedges may be sent in the time per of the cause; 0: there is no limit. r.mu must be held.
func (r *Resets) limit(c cause, now time.Time) float64 {
	l := &r.learned[c]
	n := l.before * math.Exp2(float64(now.Sub(l.cutAt)/rules[c].step)/4-1)
	if n >= l.top {
		return 0
	}
	return max(math.Floor(n), rules[c].least)
}

// lifted is when the learned limit ends, or the time of a cut that has set none. r.mu must be held.
func (r *Resets) lifted(c cause) time.Time {
	l := &r.learned[c]
	if l.before == 0 {
		return l.cutAt
	}
	return l.cutAt.Add(rules[c].step * time.Duration(math.Ceil(4+4*math.Log2(l.top/l.before))))
}

// catchUp takes level and sent to now. Without a limit, level is +Inf. r.mu must be held.
func (r *Resets) catchUp(now time.Time) {
	burst, rate := math.Inf(1), 0.0
	limit := func(n float64, per time.Duration) { // half of n are saved, and the others are earned in that time
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

// count adds n hedges to those that were sent. r.mu must be held.
func (r *Resets) count(n float64) {
	r.level -= n
	for c := range r.learned {
		r.learned[c].sent = max(r.learned[c].sent+n, 0)
	}
}

// Admit is the gate: it lets a hedge pass if a reset is left for its loser. The hedge that repeats a call has no loser.
func (r *Resets) Admit(d *feature.Due) feature.Verdict {
	if d.TookReset = false; d.OffWire || d.Report.Repeated {
		return feature.Pass
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.catchUp(d.Now)
	if r.level < 1 {
		return feature.Later(stats.ResetsSpent)
	}
	r.count(1)
	d.TookReset = true
	return feature.Pass
}

// Refund refunds the reset of a hedge that was not sent, if Admit has taken one.
func (r *Resets) Refund(c *feature.CallState) {
	if c.TookReset {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.count(-1)
	}
}

// Failed is told the error of an attempt. It reports whether the server has said that it cut the attempt's connection because of
// resets. It goes by the text of the error. A server may have passed such a text on, so the consequences are mild: fewer hedges for
// a while, and the call may be sent again.
func (r *Resets) Failed(err error, now time.Time) bool {
	c, cut := causeOf(err)
	if !cut {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.catchUp(now)
	l, limited := &r.learned[c], r.limit(c, now) > 0
	switch since := now.Sub(l.cutAt); {
	case since < rules[c].per: // the calls in flight fail together, and what a limit does shows later
	case l.sent < rules[c].few:
		if c == silence && limited {
			l.before, l.top, r.trusts = 0, 0, now.Add(cleared)
		}
		return false
	case c == silence && now.Before(r.trusts):
		return false
	case c == silence && now.Sub(r.lifted(c)) > suspicion:
		l.before, l.top, l.cutAt = 0, 0, now
	default:
		if !limited {
			l.top = l.sent
		}
		l.before, l.cutAt, r.level = l.sent, now, 0
	}
	return c == said
}

// Report says what limits hedges now.
func (r *Resets) Report(now time.Time) (s stats.Resets) {
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

// causeOf returns why a server has ended the connection of an attempt that failed with err, and whether that may be due to resets. It
// knows gRPC's own errors. Only what comes before the debug data is gRPC's own.
func causeOf(err error) (c cause, cut bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return 0, false
	}
	if strings.HasPrefix(strings.TrimPrefix(s.Message(), `connection error: desc = "`), "error reading from server: ") {
		return silence, true
	}
	_, goAway, _ := strings.Cut(s.Message(), ", received prior goaway: ")
	code, data, _ := strings.Cut(goAway, ", debug data: ")
	return said, code == "code: ENHANCE_YOUR_CALM" && data != `"too_many_pings"`
}
