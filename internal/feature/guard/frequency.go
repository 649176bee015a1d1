package guard

import (
	"math"
	"time"
)

// memory is after what time a failure counts only 1/e.
const memory = time.Minute

// frequency says how many calls failed lately.
type frequency struct {
	failures, calls float64 // with fading memory, as of the last failure
	first, last     time.Time
	lastCalls       float64
}

// note takes note of a failure.
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
