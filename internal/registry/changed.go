package registry

import (
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// changed returns what is to be called when what is known of the method, or of a class of its requests, changes.
func (m *Method) changed(class string) func(learn.Change) {
	return func(change learn.Change) {
		for _, t := range m.Target.registry.config.Load().Traces {
			tellChanged(t, m, class, change)
		}
	}
}

func tellChanged(t *settings.Trace, m *Method, class string, change learn.Change) {
	switch {
	case change.DistributionChanged && t.DistributionChanged != nil:
		t.DistributionChanged(stats.DistributionChanged{Target: m.Target.Name, Method: m.Name, Class: class})
	case !change.DistributionChanged && t.HedgingStepped != nil:
		t.HedgingStepped(stats.HedgingStepped{
			Target: m.Target.Name, Method: m.Name, Class: class, Choice: *change.Choice,
		})
	}
}
