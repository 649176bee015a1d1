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
	add(&sum, r.departed.read(false))
	for _, m := range r.entries.all() {
		add(&sum, m.Counters.read(false))
	}
	return sum
}

// Methods returns what is known of each method of each target, sorted by target and method.
func (r *Registry) Methods() []stats.Method {
	if r == nil {
		return nil
	}
	now := time.Now()
	r.mu.Lock()
	methods := r.entries.all()
	r.mu.Unlock()

	ready := r.census(methods)
	rows := make([]stats.Method, 0, len(methods))
	for _, m := range methods {
		rows = append(rows, m.stats(now, ready[m.Target.Name]))
	}
	slices.SortFunc(rows, func(a, b stats.Method) int {
		return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(a.Method, b.Method))
	})
	return rows
}

// census returns what is ready on all connections to the target of each method, by the target's name.
func (r *Registry) census(methods []*Method) map[string]place.Census {
	connections := map[string][]string{}
	for _, m := range methods {
		connections[m.Target.Name] = nil
		if r.config.Load().TargetName == nil {
			connections[m.Target.Name] = []string{m.Target.Name}
		}
	}
	r.names.Range(func(connection, name any) bool {
		if all, asked := connections[name.(string)]; asked {
			connections[name.(string)] = append(all, connection.(string))
		}
		return true
	})
	ready := map[string]place.Census{}
	for name, all := range connections {
		ready[name] = place.Count(all...)
	}
	return ready
}

func (m *Method) stats(now time.Time, ready place.Census) stats.Method {
	s, estimate, held := m.Settings(), m.Learner.Estimate(), m.Target.Budget.Balance(now)
	row := stats.Method{
		Target: m.Target.Name, Method: m.Name, Names: *m.names.Load(), PausedBy: m.Target.registry.pauses.By(m.Target.Name, m.Name),
		Rules: slices.Clone(s.Applied), Counts: m.Counters.read(false), EarlyHeaderShare: m.Counters.earlyHeaderShare(),
		Choice: estimate.Stats(), Gain: s.Groups.Gain(now, s.Learning.Target), Classes: m.classes.stats(now),
		Tokens: held.Tokens, Burst: held.Burst, Saved: held.Saved,
		Guard: m.guard.State(now, m.traffic()), Resets: m.Target.Resets.Report(now),
		Backends: ready.Backends, Connections: ready.Connections, Silent: slices.Clone(ready.Silent), Moved: ready.Moved,
		SingleConnection: ready.Connections == 1 || m.Target.oneConnection.single.Load(), NoBackendPolicy: m.noPolicy.Load(),
	}
	if row.Gain != nil && row.Choice != (stats.Choice{}) { // what the control group takes is not what hedging leads to
		row.Choice.MeasuredTail = row.Gain.Hedged.Value
	}
	row.ThrottleTokens, row.ThrottleMax = s.Throttle.Tokens()
	switch {
	case s.Policy != nil:
		row.Delay = s.Policy.Delay
	case s.Trigger.Kind == settings.FixedTrigger:
		row.Delay = s.Trigger.Delay
	case estimate != nil:
		row.Delay = estimate.Delay
	}
	quantiles(&m.Learner, now, &row.P50, &row.P90, &row.P99)
	if s.DryRun {
		row.Forecasts = m.Learner.Forecasts(now)
	}
	withdraw(&row)
	return row
}

func quantiles(l *learn.Learner, now time.Time, p50, p90, p99 *time.Duration) {
	d := l.Snapshot(now)
	*p50, _ = d.Quantile(0.50)
	*p90, _ = d.Quantile(0.90)
	*p99, _ = d.Quantile(0.99)
}

// withdraw removes the predictions if headers come too early for hedges, in at least half of the calls.
func withdraw(t *stats.Method) {
	if t.EarlyHeaderShare < 0.5 {
		return
	}
	t.Forecasts = nil
	withdrawChoice(&t.Choice)
	for i := range t.Classes {
		withdrawChoice(&t.Classes[i].Choice)
	}
}

func withdrawChoice(c *stats.Choice) {
	if *c != (stats.Choice{}) {
		c.PredictedTail, c.PredictedLoad, c.Saved = c.UnhedgedTail, 0, 0
		c.HeadersFirst = true
	}
}
