package resets

import "time"

// Report is what is known of a target's resets: see hedge.Resets.
type Report struct {
	Mode  Mode
	Limit int
	Per   time.Duration
	Since time.Time
	Until time.Time
	Left  int
}

// Mode is how resets to a target are limited.
type Mode uint8

const (
	Unlimited Mode = iota
	Learned
	Set
)

// Report returns what is known.
func (r *Resets) Report(now time.Time) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Report{Left: int(r.left.Load())}
	switch {
	case r.option != nil:
		s.Mode, s.Limit, s.Per = Set, r.option.N, r.option.Per
	case now.Before(r.calm.Until):
		s.Mode, s.Since, s.Until = Learned, r.calm.Since, r.calm.Until
	}
	return s
}

// Calm returns the time in which no loser is reset; nil if it is over. A snapshot has it.
func (r *Resets) Calm(now time.Time) *Calm {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calm; now.Before(c.Until) {
		return &c
	}
	return nil
}

// Restore takes over what another process has learned, for an hour at most.
func (r *Resets) Restore(c Calm, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := now.Add(longestHold); c.Until.After(most) {
		c.Until = most
	}
	if now.Before(c.Until) {
		r.hold = firstHold
		r.keepCalm(c)
	}
}
