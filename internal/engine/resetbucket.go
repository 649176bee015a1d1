package engine

import (
	"math"
	"time"
)

// resetBucket is a token bucket that pays for resets. It may be overdrawn by calls that were under way when it ran empty.
type resetBucket struct {
	burst float64 // the most tokens
	rate  float64 // tokens a second
	level float64
	at    time.Time
}

// set limits resets to n in any time of per.
func (b *resetBucket) set(n int, per time.Duration, now time.Time) {
	// The most in that time is the burst and what is earned meanwhile, which is thus half of n each.
	burst := math.Max(1, math.Floor(float64(n)/2))
	earned := math.Max(float64(n)-burst, 1)
	if n == 0 {
		burst, earned = 0, 0
	}
	*b = resetBucket{burst: burst, rate: earned / per.Seconds(), level: burst, at: now}
}

// half limits resets to half of what was seen, in a second, a minute and in between: the burst and what is earned are a
// quarter of it each.
func (b *resetBucket) half(seen resetsSeen, now time.Time) {
	b.burst = math.Max(1, math.Floor(float64(seen.second)/4))
	b.rate = float64(seen.minute) / 4 / 60
	if seen.minute < 4 {
		b.burst, b.rate = 0, 0
	}
	b.level, b.at = 0, now // the server may count what was sent before
}

// raise raises the limit by half, and by a reset a minute at least.
func (b *resetBucket) raise(now time.Time) {
	level := b.tokens(now)
	b.burst = math.Max(1, b.burst*1.5)
	b.rate = math.Max(b.rate+1./60, b.rate*1.5)
	b.level = level
}

// tokens returns how many resets are paid for; it is negative if the bucket is overdrawn.
func (b *resetBucket) tokens(now time.Time) float64 {
	if d := now.Sub(b.at); d > 0 {
		b.level = math.Min(b.burst, b.level+d.Seconds()*b.rate)
		b.at = now
	}
	return b.level
}

func (b *resetBucket) take(now time.Time) { b.level = b.tokens(now) - 1 }

// low reports whether so few tokens are left that the calls under way could need them all.
func (b *resetBucket) low(now time.Time) bool { return b.tokens(now) < math.Max(4, b.burst/2) }

// perMinute is the most resets in any minute.
func (b *resetBucket) perMinute() float64 { return b.burst + 60*b.rate }

// recent counts the resets of the last minute by the second.
type recent struct {
	second  int64 // the last one counted, since the Unix epoch
	seconds [60]uint32
}

func (r *recent) add(n int, now time.Time) {
	r.move(now)
	r.seconds[r.second%60] += uint32(n)
}

// counts returns the resets of the last minute, and of the fuller one of the last two seconds.
func (r *recent) counts(now time.Time) (minute, second int) {
	r.move(now)
	for _, n := range r.seconds {
		minute += int(n)
	}
	return minute, int(max(r.seconds[r.second%60], r.seconds[(r.second+59)%60]))
}

// move empties the seconds that have begun since the last one counted.
func (r *recent) move(now time.Time) {
	second := now.Unix()
	for range min(second-r.second, 60) {
		r.second++
		r.seconds[r.second%60] = 0
	}
	r.second = max(r.second, second)
}
