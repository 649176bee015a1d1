package hedge

import (
	"context"
	"math/bits"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/engine"
)

// OtherClass is the name of the class of all requests whose class came when a method had sixteen others: see [WithClass].
const OtherClass = engine.OtherClass

// BySize is a class function for [WithClass]: the size of a protobuf request on the wire, in powers of four. Requests that are
// no protobuf messages have no class.
func BySize(_ context.Context, _ string, request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	return sizes[min((bits.Len(uint(proto.Size(m)))+1)/2, len(sizes)-1)]
}

// sizes are the names of the classes of BySize: class n has the sizes below 4ⁿ.
var sizes = func() (names [engine.MaxClasses]string) {
	for n := range names {
		names[n] = "<" + strconv.Itoa(1<<(2*n)) + "B"
	}
	return names
}()
