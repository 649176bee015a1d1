package registry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

const (
	sampleEvery = 10 * time.Second
	samples     = 61 // ten minutes are between the first and the last
	// markEvery is the time between two marks, so that recent counts cover one to two of it.
	markEvery = time.Minute
)

// recent tracks the recent outcomes of the callers of a method. Calls that teach the learner cost
// nothing here: the learner's window has their latencies, and the learner causes the samples.
type recent struct {
	due atomic.Int64 // the next sample, after the registry's origin
	// untaught has the latencies that callers got and the learner's window lacks: of calls that a
	// hedge answered, and of calls that teach nothing. nil before the first.
	untaught atomic.Pointer[sketch.Window]

	mu    sync.Mutex
	marks *[2]mark // the older one first; nil before the first use
	rows  []Sample // the newest is the last; the first are zero until there are as many; nil without a page
}

// mark has the counts of a moment.
type mark struct {
	at     time.Duration // after the registry's origin
	counts stats.Counts
}

// Sample describes a method at a moment, and since the sample before.
type Sample struct {
	At time.Time `json:"at"`
	// Tail is stats.Recent.P99, and Unhedged is stats.Choice.UnhedgedTail. They are 0 if no call was
	// answered within the window, and Unhedged if it is unknown or no primary answered.
	Tail, Unhedged time.Duration
	// Load is the extra load since the previous sample, as by stats.Counts.HedgeRate, and Failed the
	// share of failed calls. Known reports whether there was a call since.
	Load, Failed float64
	Known        bool

	calls, hedges, turnedAway, failed int64 // totals at At
}

// KeepHistory starts to keep samples. It may be called concurrently, and more than once.
func (r *Registry) KeepHistory() {
	if r != nil {
		r.keepsHistory.Store(true)
	}
}

// Answered records the latency of a call that ended at now with an answer, unless the learner has it
// as the latency of a primary that answered.
func (m *Method) Answered(now time.Time, latency time.Duration) {
	w := m.recent.untaught.Load()
	if w == nil {
		m.recent.untaught.CompareAndSwap(nil, sketch.New(m.Learner.Config().Window))
		w = m.recent.untaught.Load()
	}
	w.Record(now, latency, true)
	m.sample(now)
}

// Failed counts a call that failed at now.
func (m *Method) Failed(now time.Time, hedged, inControlGroup bool) {
	m.Counters.Failed.Add(1)
	if hedged {
		m.Counters.FailedHedged.Add(1)
	}
	if inControlGroup {
		m.Counters.ControlFailed.Add(1)
	}
	m.Counters.Flush()
	m.sample(now)
}

// sample takes a sample if one is due. The learner, calls that teach nothing, and readers of the
// method cause it.
func (m *Method) sample(now time.Time) {
	h, at := &m.recent, now.Sub(m.Target.registry.origin)
	if int64(at) < h.due.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if int64(at) < h.due.Load() {
		return
	}
	h.due.Store(int64(at + sampleEvery))
	counts, marks := m.Counters.read(false), m.marks()
	if at-marks[1].at >= markEvery {
		marks[0], marks[1] = marks[1], mark{at, counts}
	}
	if m.Target.registry.keepsHistory.Load() {
		m.keep(now, &counts)
	}
}

// marks returns the two marks. m.recent.mu must be held.
func (m *Method) marks() *[2]mark {
	h := &m.recent
	if h.marks == nil {
		h.marks = &[2]mark{{at: m.made}, {at: m.made}}
	}
	return h.marks
}

// keep adds a row to the history. m.recent.mu must be held.
func (m *Method) keep(now time.Time, s *stats.Counts) {
	h := &m.recent
	if h.rows == nil {
		h.rows = make([]Sample, samples)
	}
	before := &h.rows[samples-1]
	row := Sample{At: now, calls: s.Calls, hedges: s.Hedges, turnedAway: s.TurnedAway, failed: s.Failed}
	row.Tail = m.tail(now, s)
	if e := m.Learner.Estimate(); row.Tail > 0 && e != nil && e.Choice != nil && m.Learner.Answered(now, nil).Total() > 0 {
		row.Unhedged = e.Choice.UnhedgedTail
	}
	if row.Known = !before.At.IsZero() && row.calls > before.calls; row.Known {
		more := stats.Counts{Calls: row.calls - before.calls, Hedges: row.hedges - before.hedges,
			TurnedAway: row.turnedAway - before.turnedAway}
		row.Load = more.HedgeRate()
		row.Failed = min(float64(row.failed-before.failed)/float64(more.Calls), 1)
	}
	copy(h.rows, h.rows[1:])
	h.rows[samples-1] = row
}

// tail returns the p99 of the latencies that callers got within the window, or 0 without an answer.
// m.recent.mu must be held.
func (m *Method) tail(now time.Time, counts *stats.Counts) time.Duration {
	lately := since(*counts, m.marks()[0].counts)
	if why := m.Unhedged(counts); why == stats.NotSelected || why == stats.NoDescriptor ||
		lately.Failed > 0 && lately.Failed >= lately.Calls {
		return 0
	}
	p99, _ := m.Learner.Answered(now, m.recent.untaught.Load()).Quantile(0.99)
	return p99
}

// recently returns the recent outcomes of callers, given the current counts.
func (m *Method) recently(now time.Time, counts *stats.Counts) stats.Recent {
	m.sample(now)
	h := &m.recent
	h.mu.Lock()
	defer h.mu.Unlock()
	from := &m.marks()[0]
	return stats.Recent{
		Counts: since(*counts, from.counts), Over: now.Sub(m.Target.registry.origin) - from.at, P99: m.tail(now, counts),
	}
}

// History returns the samples of a method, the oldest first.
func (m *Method) History() []Sample {
	now := time.Now()
	m.sample(now)
	m.recent.mu.Lock()
	defer m.recent.mu.Unlock()
	rows := []Sample{}
	for _, s := range m.recent.rows {
		if now.Sub(s.At) <= samples*sampleEvery {
			rows = append(rows, s)
		}
	}
	return rows
}
