// Package resets decides for one target which losing attempts are reset on the wire, and which are left to run to their end.
package resets

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// Resets is what is known of one target. Every loser is reset, unless WithResetLimit limits that, or the server has said that
// there were too many: then none is for some time. The zero value is ready for use. All methods may be called concurrently.
type Resets struct {
	limited atomic.Bool  // read for every call
	lastAt  atomic.Int64 // when a reset was sent last, in nanoseconds since the Unix epoch; 0: never
	watched atomic.Int64 // until when attempts are watched, likewise
	left    atomic.Int64 // losers that run to their end now

	mu      sync.Mutex
	option  *Limit    // WithResetLimit; nil: none
	allowed bucket    // by the option
	calm    Calm      // it stays while an option is in force
	cutAt   time.Time // when a connection was cut last because of resets
}

// Calm is a time in which no loser is reset, because the server has said that there were too many resets.
type Calm struct{ Since, Until time.Time }

const (
	// memory is how long after a reset a cut may be its consequence.
	memory = time.Minute
	// wake is how long after a cut another one, of another connection, has the same cause.
	wake = 5 * time.Second
	// watch is how long attempts are watched after a failure that may have been a cut, and after a calm.
	watch = 10 * time.Minute
	// calmFor is how long a calm lasts.
	calmFor = 10 * time.Minute
	// mostLeft bounds the losers of a target that run to their end.
	mostLeft = 1000
)

// SetLimit puts WithResetLimit into force; nil means that there is no such option.
func (r *Resets) SetLimit(l *Limit, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l != nil && (r.option == nil || *r.option != *l) {
		r.allowed = newBucket(*l, now)
	}
	r.option = l
	r.limited.Store(l != nil || now.Before(r.calm.Until))
}

// Low reports whether so few resets are left that a call that begins now must be able to leave its primary: the calls under way
// could need them all.
func (r *Resets) Low(now time.Time) bool {
	_, low := r.ask(now)
	return low
}

func (r *Resets) Spent(now time.Time) bool {
	spent, _ := r.ask(now)
	return spent
}

func (r *Resets) ask(now time.Time) (spent, low bool) {
	if !r.limited.Load() {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens := r.tokens(now)
	return tokens < 1, tokens < max(4, r.allowed.burst/2)
}

// tokens returns how many resets are paid for: below 0 if the bucket is overdrawn, +Inf without a limit. The lock must be held.
func (r *Resets) tokens(now time.Time) float64 {
	switch b := &r.allowed; {
	case r.option != nil:
		if d := now.Sub(b.at); d > 0 {
			b.level, b.at = min(b.burst, b.level+d.Seconds()*b.rate), now
		}
		return b.level
	case now.Before(r.calm.Until):
		return 0
	}
	r.limited.Store(false) // a calm is over
	return math.Inf(1)
}

// Lost takes the losers of a race and returns those that are left to run to their end. Only those in may can be left.
func (r *Resets) Lost(losers, may race.Attempts, now time.Time) (left race.Attempts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range race.MaxAttempts {
		switch {
		case !losers.Has(n):
		case may.Has(n) && r.tokens(now) < 1 && r.left.Load() < mostLeft:
			left |= 1 << n
			r.left.Add(1)
		default:
			r.lastAt.Store(now.UnixNano())
			r.allowed.level = r.tokens(now) - 1 // without an option it means nothing: SetLimit makes a new bucket
		}
	}
	return left
}

func (r *Resets) LeftEnded() { r.left.Add(-1) }

// Suspects reports whether err may be due to resets. Its words alone prove nothing: see Watch.
func (r *Resets) Suspects(err error, now time.Time) bool {
	return now.UnixNano()-r.lastAt.Load() <= int64(memory) && ConnectionEnded(err)
}

// Watch makes attempts watched for a time from then on: one failed with an error for which Suspects is true, or a calm ends.
func (r *Resets) Watch(from time.Time) {
	r.watched.Store(max(r.watched.Load(), from.Add(watch).UnixNano()))
}

// Watches reports whether the header, the trailer and the peer of an attempt that begins now are of interest, should it fail:
// they cost too much to ask for them always.
func (r *Resets) Watches(now time.Time) bool { return now.UnixNano() < r.watched.Load() }

// Cut notes a cut that an attempt has seen, of a call that began at the given time. It reports whether resets are to
// blame: the server says so, or WithResetLimit says that it counts them.
func (r *Resets) Cut(c Cut, began, now time.Time) (blamed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c == None:
		return false
	case !r.cutAt.IsZero() && (now.Sub(r.cutAt) < wake || !began.After(r.cutAt)):
		return true // the calls in flight fail at the same time
	case now.UnixNano()-r.lastAt.Load() > int64(memory), c == NoReason && r.option == nil:
		return false
	case c == EnhanceYourCalm:
		r.keepCalm(Calm{now, now.Add(calmFor)})
	}
	r.cutAt = now
	return true
}

// keepCalm sends no resets for a time.
func (r *Resets) keepCalm(c Calm) {
	r.calm = c
	r.limited.Store(true)
	r.Watch(c.Until)
}

func (r *Resets) Report(now time.Time) stats.Resets {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := stats.Resets{Mode: stats.ResetsUnlimited, Left: int(r.left.Load())}
	if now.Before(r.calm.Until) {
		s.Mode, s.Since, s.Until = stats.ResetsLearned, r.calm.Since, r.calm.Until
	}
	if r.option != nil {
		s.Mode, s.Limit, s.Per = stats.ResetsSet, r.option.N, r.option.Per
	}
	return s
}

// Restore takes over what another process was told, for no longer than if it was told now.
func (r *Resets) Restore(c Calm, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := now.Add(calmFor); c.Until.After(most) {
		c.Until = most
	}
	if now.Before(c.Until) {
		r.keepCalm(c)
	}
}

// Admit is the gate of hedges whose primary could not be reset if they won. It holds a hedge back while no reset may be sent, and
// its primary cannot be left. A call that began before resets were limited waits for up to three times its delay, because its
// primary may hang. A call that cannot run detached, because its attempts share the request, waits as long as there is no reset.
func (r *Resets) Admit(d *feature.Due) feature.Verdict {
	if d.OffWire || d.Report.Repeated || d.Report.MayLeave {
		return feature.Pass
	}
	soon := d.Age() < 3*d.Delay
	return feature.Later(stats.ResetsSpent).If((soon || d.FewResets) && r.Spent(d.Now))
}

// Examine sets in e whether an attempt that failed with err may have lost its connection, and whether resets are to blame. Its call
// began at the given time, on conn, which may be nil.
func (r *Resets) Examine(e *race.Event, err error, seen race.Seen, began time.Time, conn feature.Conn) {
	kind := CutOf(err)
	if e.Cut = kind != None && (seen.Peer == nil || seen.Nothing()); !e.Cut {
		return
	}
	// An attempt that was not watched has the state of the connection for evidence. With several connections, it may be ready.
	ended := seen.Nothing() || seen.Peer == nil && conn != nil && conn.GetState() != connectivity.Ready
	if e.Repeat = ended && r.Cut(kind, began, time.Now()); kind == NoReason {
		e.Conn = seen.Connection()
	}
}

// Limit is WithResetLimit: at most N resets in any time of Per.
type Limit struct {
	N   int
	Per time.Duration
}

// bucket is a token bucket that pays for resets. It may be overdrawn by calls that were under way when it ran empty.
type bucket struct {
	burst float64 // the most tokens
	rate  float64 // tokens a second
	level float64
	at    time.Time
}

// newBucket returns one that pays for what a limit allows. The most in that time is the burst and what is earned meanwhile,
// which is thus half of N each.
func newBucket(l Limit, now time.Time) bucket {
	burst := float64(max(l.N/2, min(l.N, 1)))
	earned := max(float64(l.N)-burst, 1)
	return bucket{burst: burst, rate: earned / l.Per.Seconds(), level: burst, at: now}
}

// Cut is how the connection of an attempt ended.
type Cut uint8

const (
	// None: it did not end while the attempt was in flight, or that is not known.
	None Cut = iota
	// NoReason: the connection ended, and the server did not say that there were too many resets.
	NoReason
	// EnhanceYourCalm: the server said so before it ended the connection.
	EnhanceYourCalm
)

// CutOf returns how the connection of an attempt ended that failed with err, if it did. The words alone do not prove that: a
// server that relays such an error sends the same.
func CutOf(err error) Cut {
	if !ConnectionEnded(err) {
		return None
	}
	// Only what comes before the debug data, which are the server's, is gRPC's own.
	_, goAway, _ := strings.Cut(status.Convert(err).Message(), ", received prior goaway: ")
	code, data, _ := strings.Cut(goAway, ", debug data: ")
	if code == "code: ENHANCE_YOUR_CALM" && data != `"too_many_pings"` {
		return EnhanceYourCalm
	}
	return NoReason
}

// ConnectionEnded reports whether err has the text of grpc-go for a connection that ended while an attempt was in flight.
func ConnectionEnded(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	text := strings.TrimPrefix(s.Message(), "closing transport due to: ")
	return strings.HasPrefix(strings.TrimPrefix(text, `connection error: desc = "`), "error reading from server: ")
}
