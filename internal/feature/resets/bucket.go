package resets

import (
	"math"
	"time"
)

// Limit is WithResetLimit: at most N resets in any time of Per.
type Limit struct {
	N   int
	Per time.Duration
}

// bucket is a token bucket that pays for resets. It may be overdrawn by calls that were under way when it ran empty. The zero
// bucket pays for none.
type bucket struct {
	burst float64 // the most tokens
	rate  float64 // tokens a second
	level float64
	at    time.Time
}

// newBucket returns one that pays for what a limit allows. The most in that time is the burst and what is earned meanwhile,
// which is thus half of N each.
func newBucket(l Limit, now time.Time) bucket {
	if l.N == 0 {
		return bucket{}
	}
	burst := math.Max(1, math.Floor(float64(l.N)/2))
	earned := math.Max(float64(l.N)-burst, 1)
	return bucket{burst: burst, rate: earned / l.Per.Seconds(), level: burst, at: now}
}

// tokens returns how many resets are paid for; it is negative if the bucket is overdrawn.
func (b *bucket) tokens(now time.Time) float64 {
	if d := now.Sub(b.at); d > 0 {
		b.level = math.Min(b.burst, b.level+d.Seconds()*b.rate)
		b.at = now
	}
	return b.level
}

func (b *bucket) spent(now time.Time) bool { return b.tokens(now) < 1 }

// low reports whether so few tokens are left that the calls under way could need them all.
func (b *bucket) low(now time.Time) bool { return b.tokens(now) < math.Max(4, b.burst/2) }
