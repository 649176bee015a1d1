package registry

import (
	"log/slog"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
)

// Configured describes the configuration in force and the last update that was refused.
type Configured struct {
	Options []string  // the texts of the options in force
	At      time.Time // when New or an update put them in force

	Refused   error // of the last update that was refused; nil: none was
	RefusedAt time.Time
}

// Configured returns the description of the configuration in force; the zero value for an empty
// registry.
func (r *Registry) Configured() Configured {
	if !r.Made() {
		return Configured{}
	}
	r.updating.Lock()
	defer r.updating.Unlock()
	return r.configured
}

// Refuse records the error of an update that is refused, and reports it unless the update before was
// refused with the same error. If off is set, the update would have switched hedging off: that takes
// effect, with the other options as they were.
func (r *Registry) Refuse(err error, off bool) {
	if !r.Made() {
		return
	}
	r.updating.Lock()
	again := r.refused == err.Error()
	r.refused, r.configured.Refused, r.configured.RefusedAt = err.Error(), err, time.Now()
	before := r.configured.Options
	old := r.config.Load()
	if c := *old; off && !c.Off {
		c.Off = true
		// A new index, which keeps the configurations of targets: no pattern has changed.
		_ = c.Prepare()
		if r.replace(c) == nil { // nothing that an update must not change has changed
			r.configured.Options, r.configured.At = append(slices.Clip(before), "WithOff(true)"), time.Now()
		}
	}
	options := r.configured.Options
	r.updating.Unlock()
	if !again {
		settings.Emit(old.Traces, settings.Record{Level: slog.LevelError, Message: "update refused",
			Attrs: []any{"error", err.Error()}})
	}
	r.reportUpdate(old, before, options)
}
