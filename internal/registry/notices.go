package registry

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
)

const (
	// settled is the age of a registry at which most of its methods have been called.
	settled = 10 * time.Minute
	// maxUnused bounds the records on unused patterns at a time.
	maxUnused = 5
)

// reportUnusedOnce reports the patterns that match nothing in use, once, when most methods have been
// called. It is called about once a minute.
func (r *Registry) reportUnusedOnce(at time.Duration) {
	if at > settled && !r.reportedUnused.Swap(true) {
		r.reportUnused(r.Config(), nil)
	}
}

// reportUpdate reports the texts of options that an update has added and removed, and patterns that old
// lacks and that match nothing in use.
func (r *Registry) reportUpdate(old *settings.Config, before, options []string) {
	added, removed := without(options, before), without(before, options)
	if len(added)+len(removed) == 0 || len(old.Traces) == 0 {
		return
	}
	record := settings.Record{Level: slog.LevelInfo, Message: "options updated"}
	if len(added) > 0 {
		record.Attrs = append(record.Attrs, "added", added)
	}
	if len(removed) > 0 {
		record.Attrs = append(record.Attrs, "removed", removed)
	}
	settings.Emit(old.Traces, record)
	r.reportUnused(r.Config(), old)
}

// kept are the options that an update keeps, repeated or not.
var kept = []string{"WithLogger", "WithTrace", "WithTargetName", "WithWindow", "WithMaxMethods"}

// without returns the texts of options that others lacks, except of kept.
func without(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		name, _, _ := strings.Cut(text, "(")
		return slices.Contains(others, text) || slices.Contains(kept, name)
	})
}

// reportUnused reports the patterns that match nothing in use and that old, unless it is nil, lacks.
func (r *Registry) reportUnused(c, old *settings.Config) {
	if len(c.Traces) == 0 {
		return
	}
	unused := r.Unused()
	if old != nil {
		before := old.Patterns()
		unused = slices.DeleteFunc(unused, func(p string) bool { return slices.Contains(before, p) })
	}
	for _, p := range unused[:min(len(unused), maxUnused)] {
		settings.Emit(c.Traces, settings.Record{Level: slog.LevelWarn, Message: "pattern unused",
			Attrs: []any{"pattern", p}})
	}
}

// Unused returns the patterns of the configuration in force that match nothing in use; nil before the
// first call.
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
