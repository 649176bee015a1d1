package hedge

import (
	"path"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// selects reports whether WithMethods and WithIdempotentOnly let a method be hedged. If not, described is false when
// a descriptor is missing that might have let it.
func (c *config) selects(fullMethod string) (hedged, described bool) {
	if !c.matches(fullMethod) {
		return false, true
	}
	if !c.idempotentOnly {
		return true, true
	}
	return idempotent(fullMethod)
}

func (c *config) matches(fullMethod string) bool {
	if len(c.methods) == 0 {
		return true
	}
	for _, pattern := range c.methods {
		if ok, _ := path.Match(pattern, fullMethod); ok { // New has rejected malformed patterns
			return true
		}
	}
	return false
}

// idempotent reports whether the descriptor of a method, "/service/method", says that it may run twice, and whether
// there is one.
func idempotent(fullMethod string) (yes, described bool) {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false, false
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return false, false
	}
	options, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, true
}
