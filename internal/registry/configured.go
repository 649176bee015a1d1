package registry

import (
	"slices"
	"time"
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

// Refuse records the error of an update that is refused. If off is set, the update would have
// switched hedging off: that takes effect, with the other options as they were.
func (r *Registry) Refuse(err error, off bool) {
	if !r.Made() {
		return
	}
	r.updating.Lock()
	defer r.updating.Unlock()
	r.configured.Refused, r.configured.RefusedAt = err, time.Now()
	if c := *r.config.Load(); off && !c.Off {
		c.Off = true
		// A new index, which keeps the configurations of targets: no pattern has changed.
		_ = c.Prepare()
		if r.replace(c) == nil { // nothing that an update must not change has changed
			r.configured.Options, r.configured.At = append(slices.Clip(r.configured.Options), "WithOff(true)"), time.Now()
		}
	}
}
