package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/stats"
)

// Stats has counts of calls and hedges. It must have the same fields as hedge.Stats, in the same order, because one type is
// converted to the other. The fields are documented there.
type Stats struct {
	Calls                  int64
	Hedged                 int64
	Hedges                 int64
	HedgeWins, PrimaryWins int64
	SameBackend            int64
	Left                   int64
	Repeated               int64
	Warmup                 int64
	BudgetExhausted        int64
	NotDrawn               int64
	NotReady               int64
	NoOtherBackend         int64
	DeadlineNear           int64
	Paused                 int64
	OfHedges               int64
	Off                    int64
	NotSelected            int64
	NoDescriptor           int64
	Throttled              int64
	Guarded                int64
	PushedBack             int64
	NotReplayable          int64
	ResetsSpent            int64
	DryRun                 int64
	EarlyHeaders           int64
	PassedThrough          int64
	PoorAnswers            int64
	InvalidCosts           int64
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
	s.OfHedges += o.OfHedges
	s.Off += o.Off
	s.NotSelected += o.NotSelected
	s.NoDescriptor += o.NoDescriptor
	s.Throttled += o.Throttled
	s.Guarded += o.Guarded
	s.PushedBack += o.PushedBack
	s.NotReplayable += o.NotReplayable
	s.ResetsSpent += o.ResetsSpent
	s.Left += o.Left
	s.Repeated += o.Repeated
	s.DryRun += o.DryRun
	s.EarlyHeaders += o.EarlyHeaders
	s.PassedThrough += o.PassedThrough
	s.PoorAnswers += o.PoorAnswers
	s.InvalidCosts += o.InvalidCosts
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
	Ready                       place.Census
	SingleConnection            bool
	NoBackendPolicy             bool
	EarlyHeaderShare            float64
	ThrottleTokens, ThrottleMax float64
	Guard                       stats.Guard
	Classes                     []ClassStats   // by name; nil without classes
	Control                     *stats.Control // nil without a control group
	UnhedgedTail                time.Duration  // of the control group, at the target percentile; 0 while not known
	Resets                      stats.Resets   // of the target
	Rules                       []string       // patterns, the most specific last
	PausedBy                    string         // "" if it is not paused
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
		if m.settings.Load().DryRun {
			row.Forecasts = m.learner.Forecasts(now)
		}
		rows = append(rows, row)
	}
	ready := map[string]place.Census{}
	for name, connections := range e.connectionTargets() {
		ready[name] = place.Count(connections...)
	}
	for i := range rows {
		rows[i].Ready = ready[rows[i].Target]
		rows[i].SingleConnection = rows[i].SingleConnection || rows[i].Ready.Connections == 1
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
	s := m.settingsNow(e)
	row := MethodStats{
		Target:   m.target.name,
		Method:   m.name,
		Stats:    m.counters.read(),
		Estimate: m.learner.Estimate(),
		Tokens:   m.target.budget.Tokens(now),
		Burst:    m.target.budget.Burst(now),
		Saved:    m.target.budget.Saved(now),
		Classes:  m.classes.Load().stats(now),
		Resets:   m.target.resets.Report(now),
	}
	row.Control, row.UnhedgedTail = s.groups.compare(now, s.learning.Target)
	row.NoBackendPolicy = m.noPolicy.Load()
	row.Rules, row.PausedBy = s.applied, e.pausedBy(m)
	row.SingleConnection = m.target.oneConnection.single.Load()
	row.EarlyHeaderShare = m.counters.earlyHeaderShare()
	row.ThrottleTokens, row.ThrottleMax = s.throttle.read()
	row.Guard = m.guard.State(now, m.traffic())
	switch {
	case s.policy != nil:
		row.Delay = s.policy.delay
	case s.Trigger.Kind == FixedTrigger:
		row.Delay = s.Trigger.Delay
	case row.Estimate != nil:
		row.Delay = row.Estimate.Delay
	}
	d := m.learner.Snapshot(now)
	row.P50, _ = d.Quantile(0.50)
	row.P90, _ = d.Quantile(0.90)
	row.P99, _ = d.Quantile(0.99)
	return row
}
