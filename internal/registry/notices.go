package registry

import (
	"log/slog"
	"slices"

	"github.com/grpchedge/hedge/internal/settings"
)

const (
	firstCallsSeen = 100 // of a target, before a notice that none was selected
	maxSeen        = 10  // methods in the notice
)

func (t *Target) reportUnselected() {
	c, why := t.registry.config.Load(), "no option selects a method of the first 100 calls: see WithReadOnlyMethods"
	if c.ServiceConfig != nil && len(c.Methods) == 0 && len(c.ReadOnly) == 0 && !c.IdempotentOnly {
		why = "no service config has a hedgingPolicy for a method of the first 100 calls"
	}
	if settings.IsHTTP(t.Name) {
		why = "no option selects a request of the first 100: " + settings.HTTPRule
	}
	var methods []string
	t.methods.Range(func(name, _ any) bool {
		methods = append(methods, name.(string))
		return true
	})
	slices.Sort(methods)
	shown := min(len(methods), maxSeen)
	attrs := []any{"reason", why, "methods", methods[:shown]}
	if more := len(methods) - shown; more > 0 {
		attrs = append(attrs, "more", more)
	}
	settings.Emit(c.Traces, settings.Notice{Level: slog.LevelWarn, Message: "no method selected", Target: t.Name,
		Attrs: attrs})
}

// Unused returns the patterns of the configuration in force that match nothing in use; nil before
// the first call.
func (r *Registry) Unused() []string {
	if !r.Made() {
		return nil
	}
	r.mu.Lock()
	known := r.methods()
	r.mu.Unlock()
	var methods [][2]string
	for _, m := range known {
		methods = append(methods, [2]string{m.Target.Name, m.Name})
	}
	if len(methods) == 0 {
		return nil
	}
	return r.Config().Unused(methods)
}
