package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/place"
)

// Stats has counts of calls and hedges. It must have the same fields as hedge.Stats, in the same order, because one type is
// converted to the other. The fields are documented there.
type Stats struct {
	Calls                  int64
	Hedged                 int64
	Hedges                 int64
	HedgeWins, PrimaryWins int64
	SameBackend            int64
	Warmup                 int64
	BudgetExhausted        int64
	NotDrawn               int64
	NotReady               int64
	NoOtherBackend         int64
	DeadlineNear           int64
	Paused                 int64
	Off                    int64
	NotSelected            int64
	NoDescriptor           int64
	Throttled              int64
	PushedBack             int64
	NotReplayable          int64
	DryRun                 int64
	EarlyHeaders           int64
	PassedThrough          int64
	LoserPanics            int64
	TriggerPanics          int64
}

func (s *Stats) add(o Stats) {
	s.Calls += o.Calls
	s.Hedged += o.Hedged
	s.Hedges += o.Hedges
	s.HedgeWins += o.HedgeWins
	s.PrimaryWins += o.PrimaryWins
	s.Warmup += o.Warmup
	s.BudgetExhausted += o.BudgetExhausted
	s.NotDrawn += o.NotDrawn
	s.NotReady += o.NotReady
	s.NoOtherBackend += o.NoOtherBackend
	s.SameBackend += o.SameBackend
	s.DeadlineNear += o.DeadlineNear
	s.Paused += o.Paused
	s.Off += o.Off
	s.NotSelected += o.NotSelected
	s.NoDescriptor += o.NoDescriptor
	s.Throttled += o.Throttled
	s.PushedBack += o.PushedBack
	s.NotReplayable += o.NotReplayable
	s.DryRun += o.DryRun
	s.EarlyHeaders += o.EarlyHeaders
	s.PassedThrough += o.PassedThrough
	s.LoserPanics += o.LoserPanics
	s.TriggerPanics += o.TriggerPanics
}

// MethodStats is what is known of one method of one target: see hedge.TargetStats.
type MethodStats struct {
	Target, Method string
	Stats
	Delay                       time.Duration
	P50, P90, P99               time.Duration
	Estimate                    *learn.Estimate // in force; nil while the method is being learned
	Forecasts                   []learn.Forecast
	Tokens, Burst, Saved        float64
	Backends                    int
	NoBackendPolicy             bool
	EarlyHeaderShare            float64
	ThrottleTokens, ThrottleMax float64
	Classes                     []ClassStats // by name; nil without classes
	Control                     *Control     // nil without a control group
}

// Stats returns the totals over all methods of all targets, including removed ones, in one consistent copy.
func (e *Engine) Stats() Stats {
	var sum Stats
	if e == nil {
		return sum
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	sum.add(e.departed.read())
	e.eachMethod(func(m *method) { sum.add(m.counters.read()) })
	return sum
}

// Methods returns what is known of each method of each target, sorted by target and method.
func (e *Engine) Methods() []MethodStats {
	if e == nil {
		return nil
	}
	now := time.Now()
	var methods []*method
	e.mu.Lock()
	e.eachMethod(func(m *method) { methods = append(methods, m) })
	e.mu.Unlock()

	rows := make([]MethodStats, 0, len(methods))
	for _, m := range methods {
		row := m.stats(e, now)
		if e.config.DryRun {
			row.Forecasts = m.learner.Forecasts(now)
		}
		rows = append(rows, row)
	}
	backends := map[string]int{}
	for name, connections := range e.connectionTargets() {
		backends[name] = place.Backends(connections...)
	}
	for i := range rows {
		rows[i].Backends = backends[rows[i].Target]
	}
	slices.SortFunc(rows, func(a, b MethodStats) int {
		if c := strings.Compare(a.Target, b.Target); c != 0 {
			return c
		}
		return strings.Compare(a.Method, b.Method)
	})
	return rows
}

func (m *method) stats(e *Engine, now time.Time) MethodStats {
	row := MethodStats{
		Target:   m.target.name,
		Method:   m.name,
		Stats:    m.counters.read(),
		Estimate: m.learner.Estimate(),
		Tokens:   m.target.budget.Tokens(now),
		Burst:    m.target.budget.Burst(now),
		Saved:    m.target.budget.Saved(now),
		Classes:  m.classes.stats(now),
		Control:  m.groups.compare(now, e.learning.Target),
	}
	row.NoBackendPolicy = m.noPolicy.Load()
	row.EarlyHeaderShare = m.counters.earlyHeaderShare()
	row.ThrottleTokens, row.ThrottleMax = m.target.throttle.read()
	switch {
	case m.policy != nil:
		row.Delay = m.policy.delay
	case e.config.Trigger.Kind == FixedTrigger:
		row.Delay = e.config.Trigger.Delay
	case row.Estimate != nil:
		row.Delay = row.Estimate.Delay
	}
	d := m.learner.Snapshot(now)
	row.P50, _ = d.Quantile(0.50)
	row.P90, _ = d.Quantile(0.90)
	row.P99, _ = d.Quantile(0.99)
	return row
}
