package settings

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/grpchedge/hedge/internal/pattern"
	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// Selects reports whether the options select a method for hedging. described is false if the method is not selected because
// its descriptor is missing.
func (c *Config) Selects(fullMethod string) (selected, described bool) {
	switch {
	case pattern.Any(c.ReadOnly, fullMethod):
		return true, true
	case len(c.Methods) > 0 && !pattern.Any(c.Methods, fullMethod):
		return false, true
	case c.IdempotentOnly:
		level, described := idempotencyLevel(fullMethod)
		return level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, described
	}
	return len(c.Methods) > 0 || c.All || len(c.ReadOnly) == 0 && c.PolicyOf(fullMethod) != nil, true
}

// ReadsOnly reports whether a method only reads, according to its descriptor or WithReadOnlyMethods.
func (c *Config) ReadsOnly(fullMethod string) bool {
	if pattern.Any(c.ReadOnly, fullMethod) {
		return true
	}
	level, _ := idempotencyLevel(fullMethod)
	return level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// idempotencyLevel returns the idempotency_level in the descriptor of a method, "/service/method", and whether there is a
// descriptor.
func idempotencyLevel(fullMethod string) (level descriptorpb.MethodOptions_IdempotencyLevel, described bool) {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return level, false
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return level, false
	}
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel(), true
}

// PolicyOf returns the hedgingPolicy of a method, nil if the service config has none for it.
func (c *Config) PolicyOf(fullMethod string) *serviceconfig.HedgingPolicy {
	if c.ServiceConfig == nil {
		return nil
	}
	return c.ServiceConfig.Policy(fullMethod)
}

// Throttling returns the configuration of each target's throttle; nil for none.
func (c *Config) Throttling() *serviceconfig.Throttle {
	if c.ServiceConfig == nil {
		return nil
	}
	return c.ServiceConfig.Throttle
}
