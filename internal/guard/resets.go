package guard

import (
	"cmp"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/stats"
)

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

// count adds n to the hedges that were sent. r.mu must be held.
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
