package stream

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/pattern"
)

// waits reports whether Header of a call waits for the first message: hedge.WithWaitForMessage names its method, and, if the
// message is to be judged, its type is known.
func waits(method string, c *call.Call, opts []grpc.CallOption) bool {
	if !c.WaitsForMessage() {
		return false
	}
	of := attempt.NewOptions(opts)
	return !c.Judges() || of.Codec() == nil && described(method) != nil
}

// described returns an empty message of a method's response type, according to the descriptors linked into the program; nil
// if the method is not among them.
func described(method string) any {
	m := pattern.Descriptor(method)
	if m == nil {
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil
	}
	return t.New().Interface()
}
