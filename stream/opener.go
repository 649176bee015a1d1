package stream

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/attempt"
)

// opener is what all attempts of a call are opened with.
type opener struct {
	desc     *grpc.StreamDesc
	cc       *grpc.ClientConn
	method   string
	streamer grpc.Streamer
	options  attempt.Options
	types    *messageTypes // nil unless WaitForMessage names the method
}

// closed reports whether the connection has been closed.
func (o *opener) closed() bool {
	return o.cc != nil && o.cc.GetState() == connectivity.Shutdown
}

func (o *opener) remember(m any)               { o.types.remember(o.method, m) }
func (o *opener) reply() (attempt.Reply, bool) { return o.types.reply(o.method, o.options.Caller()) }
func (o *opener) empty() any                   { return o.types.empty(o.method, o.options.Caller()) }
