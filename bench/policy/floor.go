package policy

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

// floorDelay is the delay of the floor's timer, which is this library's least delay.
const floorDelay = time.Millisecond

// floorUnary does only what every hedging client must do: it gives the call a context that can be
// cancelled, and sets a timer that it stops when the call ends.
func floorUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(floorDelay, func() {}).Stop()
	return invoker(ctx, method, req, reply, cc, opts...)
}

// floorStream is the same for a stream.
func floorStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(floorDelay, func() {})
	st, err := streamer(ctx, desc, cc, method, opts...)
	f := &floor{st, cancel, timer}
	f.endAt(err)
	return f, err
}

type floor struct {
	grpc.ClientStream
	cancel context.CancelFunc
	timer  *time.Timer
}

func (f *floor) RecvMsg(m any) error {
	err := f.ClientStream.RecvMsg(m)
	f.endAt(err)
	return err
}

// endAt ends the call if err is not nil.
func (f *floor) endAt(err error) {
	if err != nil {
		f.timer.Stop()
		f.cancel()
	}
}
