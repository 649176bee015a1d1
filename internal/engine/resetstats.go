package engine

import (
	"time"

	"github.com/grpchedge/hedge/internal/snapshot"
)

// Resets is what is known of a target's resets: see hedge.Resets.
type Resets struct {
	Mode  ResetMode
	Limit int
	Per   time.Duration
	Since time.Time
	Why   string
	Left  int
}

func (r *resets) read(now time.Time) Resets {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	s := Resets{Mode: r.mode, Since: r.since, Why: r.why, Left: int(r.left.Load())}
	switch r.mode {
	case ResetsSet:
		s.Limit, s.Per = r.set.N, r.set.Per
	case ResetsLearned, ResetsSuspected:
		s.Limit, s.Per = int(r.bucket.perMinute()+0.5), time.Minute
	}
	return s
}

// ResetState is what was learned of a target's resets, for a snapshot.
type ResetState struct {
	Burst       float64   // the most resets at once
	Rate        float64   // resets a second after that
	Since       time.Time // when it was learned
	Until       time.Time // when the limit is raised next
	Hold        time.Duration
	Why         string
	SeenAMinute int
}

// ResetState returns what was learned of a target's resets; false if there is nothing, because resets are unlimited or
// WithResetLimit limits them.
func (e *Engine) ResetState(target string, now time.Time) (ResetState, bool) {
	t := e.targetNamed(target)
	if t == nil {
		return ResetState{}, false
	}
	return t.resets.state(now)
}

// RestoreResets sets what a target has learned of its resets. It returns false, and does nothing, if the target has no
// entry, the state is invalid, or WithResetLimit limits the target's resets.
func (e *Engine) RestoreResets(target string, s ResetState, now time.Time) bool {
	t := e.targetNamed(target)
	return t != nil && t.resets.restore(s, now)
}

func (r *resets) restore(s ResetState, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	valid := s.Burst >= 0 && s.Rate >= 0 && s.Burst+60*s.Rate <= plenty && s.SeenAMinute >= 0
	if !valid || r.mode == ResetsSet {
		return false
	}
	r.mode, r.since, r.why = ResetsLearned, s.Since, s.Why
	r.hold = min(max(s.Hold, firstHold), longestHold)
	r.until = now.Add(r.hold)
	if s.Until.After(now) && s.Until.Before(r.until) {
		r.until = s.Until
	}
	r.bucket = resetBucket{burst: s.Burst, rate: s.Rate, at: now}
	r.suspicion.seen.minute = s.SeenAMinute
	r.sure = s.Why == serverSays
	r.limited.Store(true)
	return true
}

func (r *resets) state(now time.Time) (ResetState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	if r.mode != ResetsLearned {
		return ResetState{}, false
	}
	return ResetState{
		Burst: r.bucket.burst, Rate: r.bucket.rate, Since: r.since, Until: r.until, Hold: r.hold, Why: r.why,
		SeenAMinute: r.suspicion.seen.minute,
	}, true
}

// knownResets returns the limit of a target's resets for a snapshot; nil if none was learned.
func (e *Engine) knownResets(target string, now time.Time) *snapshot.ResetLimit {
	s, ok := e.ResetState(target, now)
	if !ok {
		return nil
	}
	return &snapshot.ResetLimit{
		Burst: s.Burst, PerSecond: s.Rate, Since: s.Since, Until: s.Until, Hold: s.Hold, SeenAMinute: s.SeenAMinute,
		ServerSaidSo: s.Why == serverSays,
	}
}

// takeOverResets has the targets that have entries know the limits of a snapshot.
func (e *Engine) takeOverResets(known snapshot.Snapshot, now time.Time) {
	for name, t := range known {
		if l := t.ResetLimit; l != nil {
			s := ResetState{
				Burst: l.Burst, Rate: l.PerSecond, Since: l.Since, Until: l.Until, Hold: l.Hold, SeenAMinute: l.SeenAMinute,
				Why: endInTheWake,
			}
			if l.ServerSaidSo {
				s.Why = serverSays
			}
			e.RestoreResets(name, s, now)
		}
	}
}
