package interceptor_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

// step is the course of a stub attempt: it waits for a time, or for the end of its context, then
// ends with a code or a panic.
type step struct {
	after  time.Duration
	code   codes.Code
	panics any
	deaf   bool // it does not notice that its context ends
	exits  bool // it ends its goroutine
	closed bool // its stream cannot be opened: its code says why

	text     string   // of the status; the attempt's number if it is empty
	pushback []string // in the trailer
}

// silent is an attempt that never ends; the others fail or answer after a time.
func silent() step                     { return step{after: never} }
func answers(after time.Duration) step { return step{after: after} }
func fails(after time.Duration, code codes.Code, pushback ...string) step {
	return step{after: after, code: code, pushback: pushback}
}

// end ends the goroutine of an attempt, or returns the error of attempt n.
func (st step) end(n int) error {
	if st.panics != nil {
		panic(st.panics)
	}
	if st.exits {
		runtime.Goexit()
	}
	if st.code == codes.OK {
		return nil
	}
	return status.Error(st.code, cmp.Or(st.text, fmt.Sprint("attempt ", n)))
}

// stub stands for gRPC under the interceptor: attempt n does steps[n], and its reply is n.
type stub struct {
	steps   []step
	method  string // /test.Service/Method if it is empty
	request any    // a number if it is nil
	foreign bool   // it calls no OnFinish, and tells no peer

	mu       sync.Mutex
	attempts []stubAttempt
}

type stubAttempt struct {
	ctx    context.Context
	number int
	began  time.Time
	ended  time.Time
}

func (a *stubAttempt) md() metadata.MD { return metadata.Pairs("attempt", strconv.Itoa(a.number)) }

// trailer is the trailer of an attempt with these headers; nil without headers, because it was
// canceled.
func (st step) trailer(header metadata.MD) metadata.MD {
	if header == nil {
		return nil
	}
	return metadata.Join(header, metadata.MD{"grpc-retry-pushback-ms": st.pushback})
}

// invoke is a stream of one message. The stream ends before the caller has the message.
func (s *stub) invoke(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	st := s.begin(ctx, opts)
	err := st.RecvMsg(reply)
	if err == nil {
		st.end(nil, st.md())
	}
	st.end(err, nil) // if its context has ended
	return err
}

// sent returns the attempts that have ended, in the order of their numbers.
func (s *stub) sent() []stubAttempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.attempts), func(a, b stubAttempt) int { return a.number - b.number })
}

// what returns the method and the request of calls.
func (s *stub) what() (method string, request any) {
	if request = s.request; request == nil {
		request = wrapperspb.Int64(7)
	}
	return cmp.Or(s.method, "/test.Service/Method"), request
}

// call makes one call through the interceptor.
func (s *stub) call(ctx context.Context, scheduler *hedge.Scheduler, reply any, opts ...grpc.CallOption) error {
	method, request := s.what()
	return interceptor.Unary(scheduler)(ctx, method, request, reply, nil, s.invoke, opts...)
}

// observed holds the variables of call options.
type observed struct {
	header, trailer metadata.MD
	peer            peer.Peer
}

// first returns the first value of the key "attempt".
func first(md metadata.MD) string {
	if values := md.Get("attempt"); len(values) > 0 {
		return values[0]
	}
	return ""
}
