package policy

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/sketch"
)

// floorDelay is the delay of the floor's timer, which is this library's least delay.
const floorDelay = time.Millisecond

// floor is the least that hedging needs: each call has a context that can be canceled, and a timer
// that stops when the call ends. The true floor also records latencies and, because the caller of a
// stream may reuse its request, keeps it encoded in pooled memory.
type floor struct {
	delay     time.Duration  // of the timer
	latencies *sketch.Window // nil: neither latencies nor requests
}

func (f floor) dial() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(f.unary), grpc.WithStreamInterceptor(f.stream)}
}

func trueFloor([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
	return floor{time.Minute, sketch.New(30 * time.Second)}.dial(), nil, nil
}

func (f floor) record(start time.Time) {
	if f.latencies != nil {
		now := time.Now()
		f.latencies.Record(now, now.Sub(start), true)
	}
}

func (f floor) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	defer time.AfterFunc(f.delay, func() {}).Stop()
	err := invoker(ctx, method, req, reply, cc, opts...)
	f.record(start)
	return err
}

func (f floor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(f.delay, func() {})
	st, err := streamer(ctx, desc, cc, method, opts...)
	s := &floorStream{st, cancel, timer, f, time.Now(), nil}
	s.endAt(err)
	return s, err
}

type floorStream struct {
	grpc.ClientStream
	cancel context.CancelFunc
	timer  *time.Timer
	floor  floor
	start  time.Time // zero after the first message
	kept   *[]byte
}

// requests is pooled memory for encoded requests.
var requests = sync.Pool{New: func() any { return new([]byte) }}

func (s *floorStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if s.floor.latencies != nil {
		s.kept = requests.Get().(*[]byte)
		*s.kept, _ = proto.MarshalOptions{}.MarshalAppend((*s.kept)[:0], m.(proto.Message))
	}
	return err
}

func (s *floorStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if !s.start.IsZero() {
		s.floor.record(s.start)
		s.start = time.Time{}
		s.timer.Stop()
		if s.kept != nil {
			requests.Put(s.kept)
		}
	}
	s.endAt(err)
	return err
}

// endAt ends the call if err is not nil.
func (s *floorStream) endAt(err error) {
	if err != nil {
		s.timer.Stop()
		s.cancel()
	}
}
