package guard

import "time"

// comparable is what share of its calls a method fails at least, as a part of the target's, if the reason may be the same.
const comparable = 0.25

// company tells failures of one method from those of several. A method that fails much more rarely than the others has other
// reasons, or chance.
type company struct {
	all    frequency
	latest time.Time // the last failure of any method that counts
	other  time.Time // the last one of another method than that of the latest
}

// member is what a company knows of a method.
type member struct {
	own  frequency
	last time.Time // the last failure that counts
}

// joins takes note of a failure of a method, and reports whether another method had one within d.
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
