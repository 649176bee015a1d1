package settings

import (
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Selects reports whether the options select a method for hedging. described is false if the method
// is not selected because its descriptor is missing.
func (c *Config) Selects(fullMethod string) (selected, described bool) {
	switch {
	case matchAny(c.ReadOnly, fullMethod):
		return true, true
	case len(c.Methods) > 0 && !matchAny(c.Methods, fullMethod):
		return false, true
	case c.IdempotentOnly:
		level, described := idempotencyLevel(fullMethod)
		return level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, described
	}
	return len(c.Methods) > 0 || c.All || len(c.ReadOnly) == 0 && c.ServiceConfig.Policy(fullMethod) != nil ||
		c.Off && !c.SaysWhich(), true
}

// SaysWhich reports whether an option selects the methods that may run twice. A configuration that
// is off needs no such option: then all methods are selected, so that they are learned.
func (c *Config) SaysWhich() bool {
	return len(c.Methods) > 0 || len(c.ReadOnly) > 0 || c.IdempotentOnly || c.ServiceConfig != nil || c.All
}

// ReadsOnly reports whether a method only reads, according to its descriptor or
// WithReadOnlyMethods.
func (c *Config) ReadsOnly(fullMethod string) bool {
	if matchAny(c.ReadOnly, fullMethod) {
		return true
	}
	level, _ := idempotencyLevel(fullMethod)
	return level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// idempotencyLevel returns the idempotency_level in the descriptor of a method, and whether there
// is a descriptor.
func idempotencyLevel(fullMethod string) (level descriptorpb.MethodOptions_IdempotencyLevel, described bool) {
	m := rpc.Descriptor(fullMethod)
	if m == nil {
		return level, false
	}
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel(), true
}

// Throttling returns the configuration of each target's throttle; nil for none.
func (c *Config) Throttling() *rpc.Throttle {
	if c.ServiceConfig == nil {
		return nil
	}
	return c.ServiceConfig.Throttle
}
