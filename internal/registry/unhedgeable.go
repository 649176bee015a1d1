package registry

import (
	"slices"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// prevents lists the reasons why calls cannot be hedged at all, without EarlyHeaders. Transient
// reasons, such as an empty budget, are excluded.
var prevents = []stats.Reason{stats.NotReplayable, stats.NoOtherBackend, stats.DeadlineNear, stats.OfHedge}

// PreventsHedges reports whether a reason may hold for all calls of a method.
func PreventsHedges(why stats.Reason) bool { return slices.Contains(prevents, why) }

// fewUnhedgeable is the number of late calls below which their reasons are ignored.
const fewUnhedgeable = 10

// unhedgeable returns the most frequent reason why calls of a method cannot be hedged, or NoReason
// if most can be. seen is the number of calls that could not. Early headers are counted for all
// calls, other reasons for late calls alone.
func unhedgeable(c *stats.Counts, s *Settings) (why stats.Reason, seen int64) {
	var late, most, early int64
	for _, reason := range prevents {
		n := *countOf[reason](c)
		if reason == stats.NoOtherBackend && !s.OtherBackendOnly {
			n = 0 // an update has changed that
		}
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

// NoteUnhedgeable reports Unhedgeable, once per method, if most of its calls cannot be hedged. It
// is called when one of them could not be.
func (m *Method) NoteUnhedgeable() {
	s := m.Settings()
	if len(s.Traces) == 0 || m.unhedgeableTold.Load() {
		return
	}
	c := m.Counters.read(false)
	if why, seen := unhedgeable(&c, s); why != stats.NoReason && seen >= fewUnhedgeable && !m.unhedgeableTold.Swap(true) {
		settings.Tell(s.Traces, settings.Unhedgeable{Target: m.Target.Name, Method: m.Name, Reason: why})
	}
}
