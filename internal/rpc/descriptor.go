package rpc

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Descriptor returns the descriptor of a full method name; nil if none is linked into the program.
func Descriptor(fullMethod string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	m, _ := d.(protoreflect.MethodDescriptor)
	return m
}
