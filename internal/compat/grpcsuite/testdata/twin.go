package grpc

import (
	"sync"

	"google.golang.org/grpc/resolver/manual"
)

var twins sync.Map // *ClientConn → *ClientConn

// Twin returns another connection with the target and the options of cc. It is closed with cc. It is nil
// for a resolver of a test's own, which serves one connection.
func Twin(cc *ClientConn) *ClientConn {
	if _, one := cc.resolverBuilder.(*manual.Resolver); one {
		return nil
	}
	if known, ok := twins.Load(cc); ok {
		return known.(*ClientConn)
	}
	twin, err := NewClient(cc.target, newFuncDialOption(func(o *dialOptions) {
		*o = cc.dopts
		o.chainUnaryInts, o.chainStreamInts = nil, nil // unaryInt and streamInt have them
	}))
	if err != nil {
		panic(err)
	}
	if known, other := twins.LoadOrStore(cc, twin); other {
		twin.Close()
		return known.(*ClientConn)
	}
	return twin
}

func closeTwin(cc *ClientConn) {
	if twin, ok := twins.LoadAndDelete(cc); ok {
		twin.(*ClientConn).Close()
	}
}
