package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Stats returns the totals over all methods of all targets, including removed ones, in one consistent copy.
func (r *Registry) Stats() stats.Counts {
	var sum stats.Counts
	if r == nil {
		return sum
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&sum, r.departed.read())
	r.entries.each(func(m *Method) { add(&sum, m.Counters.read()) })
	return sum
}

// Methods returns what is known of each method of each target, sorted by target and method.
func (r *Registry) Methods() []stats.Method {
	if r == nil {
		return nil
	}
	now := time.Now()
	var methods []*Method
	r.mu.Lock()
	r.entries.each(func(m *Method) { methods = append(methods, m) })
	r.mu.Unlock()

	rows := make([]stats.Method, 0, len(methods))
	for _, m := range methods {
		row := m.stats(now)
		if m.settings.Load().DryRun {
			row.Forecasts = m.Learner.Forecasts(now)
		}
		withdraw(&row)
		rows = append(rows, row)
	}
	ready := map[string]place.Census{}
	for name, connections := range r.connectionTargets() {
		ready[name] = place.Count(connections...)
	}
	for i := range rows {
		row, c := &rows[i], ready[rows[i].Target]
		row.Backends, row.Connections, row.Silent, row.Moved = c.Backends, c.Connections, slices.Clone(c.Silent), c.Moved
		row.SingleConnection = row.SingleConnection || c.Connections == 1
	}
	slices.SortFunc(rows, func(a, b stats.Method) int {
		return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(a.Method, b.Method))
	})
	return rows
}

func (m *Method) stats(now time.Time) stats.Method {
	s, estimate, held := m.Settings(), m.Learner.Estimate(), m.Target.Budget.Balance(now)
	row := stats.Method{
		Target:  m.Target.Name,
		Method:  m.Name,
		Counts:  m.Counters.read(),
		Choice:  estimate.Stats(),
		Tokens:  held.Tokens,
		Burst:   held.Burst,
		Saved:   held.Saved,
		Classes: m.classes.Load().stats(now),
		Resets:  m.Target.Resets.Report(now),
	}
	if row.Gain = s.FollowUp.Measure(now); row.Gain.Measured && row.Choice.UnhedgedTailFrom != "" {
		row.Choice.UnhedgedTail, row.Choice.UnhedgedTailFrom = row.Gain.Unhedged.Value, stats.FromFollowUp
	}
	var tail time.Duration
	if row.Control, tail = s.Groups.Compare(now, s.Learning.Target); tail > 0 && row.Choice.UnhedgedTailFrom != "" {
		row.Choice.UnhedgedTail, row.Choice.UnhedgedTailFrom = tail, stats.FromControlGroup
	}
	row.NoBackendPolicy = m.noPolicy.Load()
	row.Rules, row.PausedBy = slices.Clone(s.Applied), m.Target.registry.pauses.By(m.Target.Name, m.Name)
	row.SingleConnection = m.Target.oneConnection.single.Load()
	row.EarlyHeaderShare = m.Counters.earlyHeaderShare()
	row.ThrottleTokens, row.ThrottleMax = s.Throttle.Tokens()
	row.Guard = m.guard.State(now, m.traffic())
	switch {
	case s.Policy != nil:
		row.Delay = s.Policy.Delay
	case s.Trigger.Kind == settings.FixedTrigger:
		row.Delay = s.Trigger.Delay
	case estimate != nil:
		row.Delay = estimate.Delay
	}
	quantiles(&m.Learner, now, &row.P50, &row.P90, &row.P99)
	return row
}

func quantiles(l *learn.Learner, now time.Time, p50, p90, p99 *time.Duration) {
	d := l.Snapshot(now)
	*p50, _ = d.Quantile(0.50)
	*p90, _ = d.Quantile(0.90)
	*p99, _ = d.Quantile(0.99)
}
