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

const (
	// step is how long a learned limit stays as it is. It begins with half of the hedges of the minute before the cut, grows by an
	// eighth of them with each step, and is lifted when it would be all of them.
	step = 15 * time.Minute
	// minLearned is the smallest learned limit, in hedges a minute. The text of a server's own error may look like a cut.
	minLearned = 10
)

// Resets bounds the hedges of one target. The zero value has no limit. All methods may be called concurrently.
type Resets struct {
	mu     sync.Mutex
	option *Limit    // WithResetLimit; nil: none
	cutAt  time.Time // when a server said last that there were too many resets
	before float64   // the hedges of the minute before that
	level  float64   // of a token bucket, which pays for what the limits allow
	sent   float64   // the hedges of the last minute, with fading memory
	at     time.Time // of level and sent
}

// SetLimit puts WithResetLimit into force; nil means that there is no such option.
func (r *Resets) SetLimit(l *Limit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.option = l
}

// learned is how many hedges a minute may be sent, by what a server has said; 0 if it has said nothing. r.mu must be held.
func (r *Resets) learned(now time.Time) float64 {
	eighths := 4 + int(now.Sub(r.cutAt)/step)
	if r.cutAt.IsZero() || eighths >= 8 {
		return 0
	}
	return max(math.Floor(r.before*float64(eighths)/8), minLearned)
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
	if n := r.learned(now); n > 0 {
		limit(n, time.Minute)
	}
	passed := max(now.Sub(r.at), 0) // calls come in any order
	if passed > 0 {
		r.at = now
	}
	r.level = min(r.level+passed.Seconds()*rate, burst)
	if math.IsInf(burst, 1) {
		r.level = burst
	}
	r.sent *= math.Exp(-passed.Minutes())
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
	r.level, r.sent, d.TookReset = r.level-1, r.sent+1, true
	return feature.Pass
}

// Refund refunds the reset of a hedge that was not sent, if Admit has taken one.
func (r *Resets) Refund(c *feature.CallState) {
	if c.TookReset {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.level, r.sent = r.level+1, max(r.sent-1, 0)
	}
}

// Failed is told the error of an attempt. It reports whether the server has cut the attempt's connection because of resets. It goes
// by the text of the error. A server may have passed such a text on, so the consequences are mild: fewer hedges for a while, and
// the call may be sent again.
func (r *Resets) Failed(err error, now time.Time) bool {
	if !saysTooMany(err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.catchUp(now)
	switch {
	case now.Sub(r.cutAt) < time.Minute: // the calls in flight fail together, and what a limit does shows a minute later
	case r.sent < 1/math.E: // less than one hedge in the last minute
		return false
	default:
		r.before, r.cutAt, r.level = r.sent, now, 0
	}
	return true
}

// Report says what limits hedges now.
func (r *Resets) Report(now time.Time) (s stats.Resets) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.option != nil {
		s.Limit, s.Per = r.option.N, r.option.Per
	}
	if s.Learned = int(r.learned(now)); s.Learned > 0 {
		s.Since, s.Until = r.cutAt, r.cutAt.Add(4*step)
	}
	return s
}

// saysTooMany reports whether err is gRPC's error for a connection that a server has ended after too many resets. Only what comes
// before the debug data is gRPC's own.
func saysTooMany(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	_, goAway, _ := strings.Cut(s.Message(), ", received prior goaway: ")
	code, data, _ := strings.Cut(goAway, ", debug data: ")
	return code == "code: ENHANCE_YOUR_CALM" && data != `"too_many_pings"`
}
