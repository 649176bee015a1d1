package registry

import (
	"sync"
	"time"
)

// A history has a sample of a method every sampleEvery, the newest samples of them: ten minutes. It
// is kept only after KeepHistory. It needs no goroutine: samples are taken by the learner and by
// History.
const (
	sampleEvery = 10 * time.Second
	samples     = 61 // ten minutes are between the first and the last
)

// Sample is the state of a method at one time.
type Sample struct {
	At time.Time `json:"at"`
	// Tail is the recent p99 latency, and Unhedged an estimate of the p99 without hedging. 0:
	// unknown.
	Tail, Unhedged time.Duration
	// Load is the number of hedges per call since the previous sample. Known reports whether there
	// was a call since.
	Load  float64
	Known bool

	calls, hedges int64 // totals at At
}

type history struct {
	mu   sync.Mutex
	rows []Sample // the newest is the last; the first are zero until there are as many; nil before the first sample
}

// KeepHistory starts to keep samples. It may be called concurrently, and more than once.
func (r *Registry) KeepHistory() {
	if r != nil {
		r.remembers.Store(true)
	}
}

func (r *Registry) sample(m *Method, now time.Time) {
	if !r.remembers.Load() {
		return
	}
	h := &m.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rows == nil {
		h.rows = make([]Sample, samples)
	}
	if now.Sub(h.rows[samples-1].At) < sampleEvery {
		return
	}
	s, d := m.Counters.read(false), m.Learner.Snapshot(now)
	row, before := Sample{At: now, calls: s.Calls, hedges: s.Hedges}, &h.rows[samples-1]
	row.Tail, _ = d.Ended(0.99)
	row.Unhedged, _ = d.Quantile(0.99)
	if row.Known = !before.At.IsZero() && row.calls > before.calls; row.Known {
		row.Load = float64(row.hedges-before.hedges) / float64(row.calls-before.calls)
	}
	copy(h.rows, h.rows[1:])
	h.rows[samples-1] = row
}

// History returns the samples of a method, the oldest first.
func (r *Registry) History(target, methodName string) []Sample {
	m := r.targetNamed(target).find(methodName)
	if m == nil {
		return nil
	}
	now := time.Now()
	r.sample(m, now)
	m.history.mu.Lock()
	defer m.history.mu.Unlock()
	rows := []Sample{}
	for _, s := range m.history.rows {
		if now.Sub(s.At) <= samples*sampleEvery {
			rows = append(rows, s)
		}
	}
	return rows
}
