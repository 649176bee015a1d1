package hedge

import (
	"path"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// selects reports whether WithMethods and WithIdempotentOnly let a method be hedged.
func (c *config) selects(fullMethod string) bool {
	return c.matches(fullMethod) && (!c.idempotentOnly || idempotent(fullMethod))
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

// idempotent reports whether the descriptor of a method, "/service/method", says that it may run twice.
func idempotent(fullMethod string) bool {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return false
	}
	options, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}
