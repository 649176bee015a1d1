package registry

import (
	"log/slog"
	"slices"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Unhedged returns the reason why the settings in force hedge no call of the method, as
// stats.Outcome would have it, or NoReason. counts are the method's: whether an HTTP request is
// selected depends on the request.
func (m *Method) Unhedged(counts *stats.Counts) stats.Reason {
	s := m.Settings()
	selected := s.Selected
	if s.HTTP {
		selected = (s.Selected || !s.Described) && (s.Named || counts.Calls == 0 || counts.NotSelected < counts.Calls)
	}
	switch {
	case s.Off:
		return stats.SwitchedOff
	case !selected && !s.Described:
		return stats.NoDescriptor
	case !selected:
		return stats.NotSelected
	case s.BudgetPercent == 0 || s.MaxHedges == 0:
		return stats.NoHedgesConfigured
	case s.Control == 100:
		return stats.InControlGroup
	}
	return stats.NoReason
}

// prevents lists the reasons that may hold for all calls of a method, without EarlyHeaders.
var prevents = []stats.Reason{stats.UnknownOption, stats.NotReplayable, stats.DeadlineNear, stats.OfHedge}

// PreventsHedges reports whether a reason may hold for all calls of a method.
func PreventsHedges(why stats.Reason) bool { return slices.Contains(prevents, why) }

// fewUnhedgeable is the number of late calls below which their reasons are ignored.
const fewUnhedgeable = 10

// unhedgeable returns the most frequent reason why calls of a method cannot be hedged, or NoReason
// if most can be. seen is the number of calls that cannot be hedged.
func unhedgeable(c *stats.Counts, s *settings.Settings) (why stats.Reason, seen int64) {
	var late, most, early int64
	for _, reason := range prevents {
		n := *countOf[reason](c)
		late += n
		if n > most || n == most && reason < why {
			most, why = n, reason
		}
	}
	if late < fewUnhedgeable {
		late, most, why = 0, 0, stats.NoReason
	}
	if !s.WaitsForMessage {
		early = c.EarlyHeaders
	}
	if early > most {
		why = stats.EarlyHeaders
	}
	hedgeable := float64(c.Calls-early) / float64(max(c.Calls, 1))
	if able := c.Hedged + c.DryRun; late > 0 {
		hedgeable *= float64(able) / float64(able+late)
	}
	if c.Calls == 0 || hedgeable >= 0.5 {
		why = stats.NoReason
	}
	return why, early + late
}

// ReportUnhedgeable emits a notice, once per method, if most calls of the method cannot be hedged.
func (m *Method) ReportUnhedgeable() {
	s := m.Settings()
	if len(s.Traces) == 0 || m.notedUnhedgeable.Load() {
		return
	}
	c := m.Counters.read(false)
	if why, seen := unhedgeable(&c, s); why != stats.NoReason && seen >= fewUnhedgeable && !m.notedUnhedgeable.Swap(true) {
		settings.Emit(s.Traces, settings.Notice{Level: slog.LevelWarn, Message: "method unhedgeable", Target: m.Target.Name,
			Method: m.Name, Attrs: []any{"method", m.Name, "reason", string(why)}})
	}
}
