package race

import "time"

// Commit settles the race on the primary, unless it is over already or the primary has failed: no hedge is sent any
// more, and those in flight are cancelled. It reports whether the primary decides the call.
//
// It may be called from any goroutine, at any time from before Run to after it.
func (r *Race) Commit() bool {
	r.mu.Lock()
	if r.over || r.failed {
		primary := r.over && r.winner == nil && r.crash == nil
		r.mu.Unlock()
		return primary
	}
	r.over, r.at = true, time.Now()
	if r.timer != nil {
		r.timer.Stop()
	}
	losers := r.hedges
	r.mu.Unlock()
	for _, h := range losers {
		h.cancel(ErrLost)
	}
	return true
}
