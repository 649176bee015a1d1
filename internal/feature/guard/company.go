package guard

import (
	"math"
	"time"
)

const (
	// comparable is what share of its calls a method fails at least, as a part of the target's, if the reason may be the same.
	comparable = 0.25
	// memory is after what time a failure counts only 1/e.
	memory = time.Minute
)

// company tells failures of one method from those of several. A method that fails much more rarely than the others has other
// reasons, or chance.
type company struct {
	all    frequency
	latest time.Time // the last failure of any method that counts
	other  time.Time // the last one of another method than that of the latest
}

type member struct {
	own  frequency
	last time.Time // the last failure that counts
}

// joins notes a failure of a method, and reports whether another method had one within d.
func (c *company) joins(now time.Time, t Traffic, m *member, d time.Duration) bool {
	c.all.note(now, t.Target)
	m.own.note(now, t.Method)
	if m.own.share() < comparable*c.all.share() {
		return false
	}
	if c.latest.After(m.last) {
		c.other = c.latest
	}
	m.last, c.latest = now, now
	return within(now, c.other, d)
}

// frequency says how many calls failed lately.
type frequency struct {
	failures, calls float64 // with fading memory, as of the last failure
	first, last     time.Time
	lastCalls       float64
}

func (f *frequency) note(now time.Time, calls float64) {
	if !f.last.IsZero() {
		gap := max(now.Sub(f.last).Seconds(), 0)
		f.calls = f.calls*f.fade(now) + max(0, calls-f.lastCalls)*min(1, memory.Seconds()/max(gap, 1e-9))
		f.failures = f.at(now)
	}
	if f.failures++; f.failures < 2 {
		f.first = now
	}
	f.last, f.lastCalls = now, calls
}

// fade returns what is left at now of what was noted last.
func (f *frequency) fade(now time.Time) float64 {
	return math.Exp(-max(now.Sub(f.last).Seconds(), 0) / memory.Seconds())
}

// at returns how many failures there were lately.
func (f *frequency) at(now time.Time) float64 { return f.failures * f.fade(now) }

// share is the share of calls that failed lately, as of the last failure.
func (f *frequency) share() float64 { return f.failures / max(1, f.calls) }
