package registry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Methods returns a row for each method, sorted by target and method.
func (r *Registry) Methods() []stats.Method {
	if !r.Made() {
		return nil
	}
	r.mu.Lock()
	methods := r.methods()
	r.mu.Unlock()
	slices.SortFunc(methods, func(a, b *Method) int {
		return cmp.Or(strings.Compare(a.Target.Name, b.Target.Name), strings.Compare(a.Name, b.Name))
	})
	now := time.Now()
	ready, rows := r.census(methods), make([]stats.Method, 0, len(methods))
	for _, m := range methods {
		rows = append(rows, m.stats(now, ready[m.Target.Name]))
	}
	return rows
}

func (m *Method) stats(now time.Time, ready stats.Backends) stats.Method {
	s, held, counts := m.Settings(), m.Target.Budget.Balance(now), m.Counters.read(false)
	row := stats.Method{
		Target: m.Target.Name, Method: m.Name, Names: *m.names.Load(), PausedBy: m.Target.registry.pause.Load(),
		Rules: slices.Clone(s.Applied), Counts: counts, Recent: m.recently(now, &counts),
		Learned: learned(&m.Learner, now), Gain: s.Groups.Gain(now), Classes: m.classes.stats(now),
		Budget: stats.Budget{Tokens: held.Tokens, Burst: held.Burst, Saved: held.Saved},
		Guard:  m.Guard.State(now, m.Traffic()), Resets: m.Target.Resets.State(now), Backends: ready,
	}
	row.Silent = slices.Clone(ready.Silent)
	if to := m.destinations.Load(); to != nil {
		row.Destinations = slices.Clone(*to)
	}
	row.ThrottleTokens, row.ThrottleMax = s.Throttle.Tokens()
	if s.Fixed {
		row.Delay = s.Delay
	}
	if s.DryRun {
		row.Forecasts, row.Gain = m.Learner.Forecasts(now), nil
	}
	why := m.Unhedged(&row.Counts)
	if why == stats.NoReason {
		row.Unhedgeable, _ = unhedgeable(&row.Counts, s)
		why = row.Unhedgeable
	} else if why != stats.InControlGroup {
		row.Gain = nil
	}
	if why != stats.NoReason { // there is nothing to predict, except for other budgets
		if why != stats.NoHedgesConfigured {
			row.Forecasts = nil
		}
		withdraw(&row.Learned, why)
		for i := range row.Classes {
			withdraw(&row.Classes[i].Learned, why)
		}
	}
	return row
}

func learned(l *trigger.Learner, now time.Time) (known stats.Learned) {
	if e := l.Estimate(); e != nil {
		known.Delay = e.Delay
		if e.Choice != nil {
			known.Choice = *e.Choice
		}
	}
	p := l.Unhedged(now)
	known.P50, known.P90, known.P99 = p(0.50), p(0.90), p(0.99)
	return known
}

// withdraw removes what does not apply to a method without hedges: the predictions if most of its
// calls cannot be hedged, and the choice and the delay if the settings in force hedge none.
func withdraw(l *stats.Learned, why stats.Reason) {
	switch c := &l.Choice; {
	case why == stats.NotSelected || why == stats.NoDescriptor:
		*l = stats.Learned{} // calls are not learned, and the latencies are old
	case !PreventsHedges(why) && why != stats.EarlyHeaders:
		l.Delay, *c = 0, stats.Choice{}
	case *c != (stats.Choice{}):
		c.PredictedTail, c.PredictedLoad, c.Saved = c.UnhedgedTail, 0, 0
	}
}

// census returns the ready backends on all connections to the targets of methods, by target name.
func (r *Registry) census(methods []*Method) map[string]stats.Backends {
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
	ready := map[string]stats.Backends{}
	for name, all := range connections {
		ready[name] = place.Count(all...)
	}
	return ready
}

// Stats returns the totals over all methods, including removed ones, in one consistent copy.
func (r *Registry) Stats() stats.Counts {
	var sum stats.Counts
	if r == nil {
		return sum
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&sum, 1, r.departed.read(false))
	for _, m := range r.methods() {
		add(&sum, 1, m.Counters.read(false))
	}
	return sum
}
