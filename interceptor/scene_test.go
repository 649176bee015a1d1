package interceptor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
	"github.com/grpchedge/hedge/stream"
)

const (
	ms    = time.Millisecond
	never = time.Hour
)

type (
	with = []hedge.Option
	plan = testserver.Plan
)

// door is a way to make a call: a unary one, or a stream that has its answer as its only message.
type door string

const (
	unary        door = "unary"
	streaming    door = "stream"
	headersFirst door = "stream, headers first" // the caller asks for them
)

var doors = []door{unary, streaming, headersFirst}

// eachDoor runs a test in virtual time for each of some doors, or of all.
func eachDoor(t *testing.T, name string, test func(t *testing.T, d door), some ...door) {
	t.Helper()
	if some == nil {
		some = doors
	}
	for _, d := range some {
		hedgetest.Run(t, name+", "+string(d), func(t *testing.T) { test(t, d) })
	}
}

// scene is a call that is hedged after 10 ms, unless its options change the delay, and its expected
// course.
type scene struct {
	name     string
	opts     []hedge.Option
	config   string // a service config that says all about hedging
	call     []grpc.CallOption
	method   string        // the stub's usual one if it is empty
	request  any           // the same
	deadline time.Duration // 0: none
	cancel   time.Duration // 0: never
	steps    []step
	doors    []door // nil: all

	sent     []time.Duration // when attempts go out
	at       time.Duration   // when the caller has the outcome
	winner   int
	code     codes.Code
	panics   any
	rejected bool // the outcome is
}

// times returns the times in milliseconds.
func times(all ...int) (t []time.Duration) {
	for _, n := range all {
		t = append(t, time.Duration(n)*ms)
	}
	return t
}

// playScenes plays each scene by its doors.
func playScenes(t *testing.T, scenes []scene) {
	for _, sc := range scenes {
		eachDoor(t, sc.name, func(t *testing.T, d door) {
			scheduler := hedgetest.Fixed(t, 10*ms, append(with{hedge.WithGuard(false)}, sc.opts...)...)
			if sc.config != "" {
				scheduler = hedgetest.New(t, hedge.WithServiceConfig(sc.config))
			}
			sc.play(t, d, scheduler)
		}, sc.doors...)
	}
}

// play makes the call by a door, and compares its course with the expected one. The caller's reply
// is -1 before.
func (sc scene) play(t *testing.T, d door, s *hedge.Scheduler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if sc.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, sc.deadline)
		defer cancel()
	}
	if sc.cancel > 0 {
		defer time.AfterFunc(sc.cancel, cancel).Stop()
	}
	var got observed
	var outcome stats.Outcome
	var err error
	var panicked any
	before, began, finished := s.Stats(), time.Now(), 0
	st, reply := &stub{steps: sc.steps, method: sc.method, request: sc.request}, wrapperspb.Int64(-1)
	func() {
		defer func() { panicked = recover() }()
		err = st.callBy(d, ctx, s, reply, append(sc.call, hedge.Report(&outcome), grpc.Header(&got.header),
			grpc.Trailer(&got.trailer), grpc.OnFinish(func(e error) {
				if finished++; sc.panics == nil && status.Code(e) != sc.code {
					t.Errorf("OnFinish(%v), want %v", e, sc.code)
				}
			}))...)
	}()
	at := time.Since(began)
	if p, ok := panicked.(*hedge.Panic); ok && sc.winner > 0 {
		if panicked = p.Value; !strings.Contains(string(p.Stack), "interceptor_test.") ||
			strings.Contains(string(p.Stack), ").callBy(") || !strings.Contains(p.Error(), string(p.Stack)) {
			t.Errorf("the hedge's stack is lost: %s", p.Stack)
		}
		if cause, ok := p.Value.(error); ok && (!errors.Is(p, cause) || !strings.Contains(p.Error(), cause.Error())) {
			t.Errorf("the hedge's error is lost: %v", p)
		}
	}
	synctest.Wait() // the losers have unwound, without time going on
	if at != sc.at || panicked != sc.panics || panicked == nil && (status.Code(err) != sc.code || finished != 1) {
		t.Errorf("ended after %v with %v, panic %v, OnFinish ran %d times", at, err, panicked, finished)
	}
	if panicked == nil {
		sc.checkParts(t, err, reply.Value, got)
	}
	if outcome.Rejected != sc.rejected || outcome.Winner != sc.winner || outcome.Attempts != len(sc.sent) {
		t.Errorf("report %+v, want winner %d of %d attempts, rejected %t", outcome, sc.winner, len(sc.sent), sc.rejected)
	}
	var sent []time.Duration
	for n, a := range st.sent() {
		sent = append(sent, a.began.Sub(began))
		// Each attempt of a race has a context of its own. A stream that panics leaves it to the
		// caller's.
		freed := len(sc.sent) == 1 || sc.panics != nil || a.ctx.Err() != nil
		if a.number != n || !a.deaf && (a.ended.IsZero() || a.ended.Sub(began) > sc.at) || !freed { // rules 7 and 8
			t.Errorf("attempt %d (%d) ended after %v, its context with %v", n, a.number, a.ended.Sub(began), a.ctx.Err())
		}
		// Hedges use no memory of the caller's. The hedges of a unary call share one copy of the
		// request.
		if n > 0 && a.request == st.request || n > 1 && d == unary && a.request != st.sent()[1].request {
			t.Errorf("attempt %d sends the request at %p, the caller's is at %p", n, a.request, st.request)
		}
	}
	if time.Sleep(time.Minute); !slices.Equal(sent, sc.sent) || len(st.sent()) != len(sent) { // rule 11
		t.Errorf("sent after %v, want %v; a minute later %d attempts", sent, sc.sent, len(st.sent()))
	}
	sc.checkCounts(t, s, before)
}

// checkParts checks that all parts of the outcome come from the winner: rules 1 and 6.
func (sc scene) checkParts(t *testing.T, err error, reply int64, got observed) {
	t.Helper()
	number := strconv.Itoa(sc.winner)
	cut := sc.sent[sc.winner]+sc.steps[sc.winner].after > sc.at || sc.steps[sc.winner].broken
	was := int64(-1)
	if sc.steps[sc.winner].half {
		was = halfMessage
	}
	if err == nil && reply != int64(sc.winner) || err != nil && reply != was {
		t.Errorf("reply of attempt %d, want %s's", reply, number)
	}
	if text := status.Convert(err).Message(); err != nil && !cut &&
		text != cmp.Or(sc.steps[sc.winner].text, "attempt "+number) {
		t.Errorf("the error is %q, want attempt %s's", text, number)
	}
	for name, md := range map[string]metadata.MD{"header": got.header, "trailer": got.trailer} {
		if says := first(md); says != number && !(cut && says == "") { // an attempt that was cut short says nothing
			t.Errorf("%s %v, want %s's", name, md, number)
		}
	}
}

func (sc scene) checkCounts(t *testing.T, s *hedge.Scheduler, before stats.Counts) {
	t.Helper()
	want := before
	want.Hedges += int64(len(sc.sent) - 1)
	if len(sc.sent) > 1 {
		want.Hedged++
		switch {
		case sc.panics != nil || !isAnswer(sc.code):
		case sc.winner > 0:
			want.HedgeWins++
		default:
			want.PrimaryWins++
		}
	}
	for n := range sc.sent {
		if sc.steps[n].panics != nil && sc.panics == nil {
			want.LoserPanics++
		}
	}
	if got := s.Stats(); got.Hedges != want.Hedges || got.Hedged != want.Hedged || got.HedgeWins != want.HedgeWins ||
		got.PrimaryWins != want.PrimaryWins || got.LoserPanics != want.LoserPanics || sc.rejected && got.Rejected == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func isAnswer(c codes.Code) bool {
	switch c {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}

// step is the course of a stub attempt: it waits for a time, or for the end of its context, then
// ends with a code or a panic.
type step struct {
	after  time.Duration
	code   codes.Code
	panics any
	deaf   bool // it does not notice that its context ends
	exits  bool // it ends its goroutine
	broken bool // it cannot be opened as a stream
	half   bool // before it fails, it has received half a message

	text     string   // of the status; the attempt's number if it is empty
	pushback []string // in the trailer
}

const halfMessage = 99

// silent is an attempt that never ends; the others fail or answer after a time.
func silent() step                     { return step{after: never} }
func answers(after time.Duration) step { return step{after: after} }
func fails(after time.Duration, code codes.Code, pushback ...string) step {
	return step{after: after, code: code, pushback: pushback}
}

// stub stands for gRPC under the interceptors: attempt n does steps[n], and its reply is n.
type stub struct {
	steps   []step
	method  string // /test.Service/Method if it is empty
	request any    // a number if it is nil
	foreign bool   // it calls no OnFinish, and tells no peer

	mu       sync.Mutex
	attempts []*attempt
}

// callBy makes one call of the stub by a door.
func (s *stub) callBy(d door, ctx context.Context, scheduler *hedge.Scheduler, reply any,
	opts ...grpc.CallOption) error {
	method := cmp.Or(s.method, "/test.Service/Method")
	if s.request == nil {
		s.request = wrapperspb.Int64(7)
	}
	if d == unary {
		return interceptor.Unary(scheduler)(ctx, method, s.request, reply, nil, s.invoke, opts...)
	}
	st, err := stream.Interceptor(scheduler)(ctx, &grpc.StreamDesc{ServerStreams: true}, nil, method, s.open, opts...)
	if err == nil {
		err = st.SendMsg(s.request)
	}
	if err == nil && d == headersFirst {
		_, err = st.Header()
	}
	if err == nil {
		err = st.RecvMsg(reply)
	}
	if err == nil {
		err = st.RecvMsg(new(wrapperspb.Int64Value))
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// invoke is a stream of one message. The stream ends before the caller has the message.
func (s *stub) invoke(ctx context.Context, _ string, req, reply any, _ *grpc.ClientConn,
	opts ...grpc.CallOption) error {
	a := s.begin(ctx, opts)
	_ = a.SendMsg(req)
	err := a.RecvMsg(reply)
	if err == nil {
		a.end(nil, a.md())
	}
	a.end(err, nil) // if its context has ended
	return err
}

func (s *stub) open(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	a := s.begin(ctx, opts)
	if a.broken {
		_, err := a.wait()
		a.end(err, a.md())
		return nil, err
	}
	return a, nil
}

// sent returns the attempts in the order of their numbers.
func (s *stub) sent() (all []attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts {
		all = append(all, *a)
	}
	return slices.SortedFunc(slices.Values(all), func(a, b attempt) int { return a.number - b.number })
}

// attempt is one attempt of a stub, as a stream. Headers and message come at once, and then the
// end.
type attempt struct {
	grpc.ClientStream
	step
	*attemptState
	stub    *stub
	opts    []grpc.CallOption
	ctx     context.Context
	number  int
	request any
	began   time.Time
	ended   time.Time
}

type attemptState struct {
	timer *time.Timer
	over  chan struct{} // the time of the attempt has come
	once  sync.Once
	heard bool
}

func (s *stub) begin(ctx context.Context, opts []grpc.CallOption) *attempt {
	number := simulation.AttemptOf(ctx)
	a := &attempt{step: s.steps[number], attemptState: &attemptState{over: make(chan struct{})}, stub: s, opts: opts,
		ctx: ctx, number: number, began: time.Now()}
	if a.after > 0 { // see hedgetest.Taking
		a.timer = time.AfterFunc(a.after, func() { close(a.over) })
	} else {
		close(a.over)
	}
	s.mu.Lock()
	s.attempts = append(s.attempts, a)
	s.mu.Unlock()
	if !a.deaf {
		context.AfterFunc(ctx, func() { a.end(status.FromContextError(ctx.Err()).Err(), nil) })
	}
	return a
}

// end ends the attempt, once, as gRPC does: the variables are written before the OnFinish
// callbacks.
func (a *attempt) end(err error, md metadata.MD) {
	a.once.Do(func() {
		if a.timer != nil {
			a.timer.Stop()
		}
		a.stub.mu.Lock()
		a.ended = time.Now()
		a.stub.mu.Unlock()
		for _, opt := range a.opts {
			switch opt := opt.(type) {
			case grpc.HeaderCallOption:
				*opt.HeaderAddr = md
			case grpc.TrailerCallOption:
				*opt.TrailerAddr = a.trailer(md)
			}
		}
		for _, opt := range a.opts {
			if finish, ok := opt.(grpc.OnFinishCallOption); ok && !a.stub.foreign {
				finish.OnFinish(err)
			}
		}
	})
}

func (a *attempt) md() metadata.MD { return metadata.Pairs("attempt", strconv.Itoa(a.number)) }

// trailer is the trailer of an attempt with these headers; nil without headers, because it was
// canceled.
func (a *attempt) trailer(header metadata.MD) metadata.MD {
	if header == nil {
		return nil
	}
	return metadata.Join(header, metadata.MD{"grpc-retry-pushback-ms": a.pushback})
}

// wait waits for the time of the attempt and returns its error, which is no status of its context's
// end if its time has come.
func (a *attempt) wait() (timely bool, err error) {
	done := a.ctx.Done()
	if a.deaf {
		done = nil
	}
	select {
	case <-a.over:
	case <-done:
	}
	select {
	case <-a.over: // even if the context has ended too
	default:
		return false, status.FromContextError(a.ctx.Err()).Err()
	}
	if a.panics != nil || a.exits {
		a.end(nil, a.md())
	}
	if a.panics != nil {
		panic(a.panics)
	}
	if a.exits {
		runtime.Goexit()
	}
	if a.code != codes.OK {
		err = status.Error(a.code, cmp.Or(a.text, fmt.Sprint("attempt ", a.number)))
	}
	return true, err
}

func (a *attempt) Header() (metadata.MD, error) {
	switch timely, err := a.wait(); {
	case !timely:
		return nil, err
	case err != nil: // a failure has no headers
		return nil, nil
	}
	return a.md(), nil
}

func (a *attempt) RecvMsg(m any) error {
	if a.half {
		m.(*wrapperspb.Int64Value).Value = halfMessage
	}
	timely, err := a.wait()
	switch {
	case err != nil && timely:
		a.end(err, a.md())
		return err
	case err != nil:
		return err
	case a.heard && a.ctx.Err() != nil:
		return status.FromContextError(a.ctx.Err()).Err()
	case a.heard:
		a.end(nil, a.md())
		return io.EOF
	}
	a.heard = true
	m.(*wrapperspb.Int64Value).Value = int64(a.number)
	return nil
}

func (a *attempt) SendMsg(m any) error {
	a.stub.mu.Lock()
	defer a.stub.mu.Unlock()
	a.request = m
	return nil
}

func (a *attempt) Trailer() metadata.MD { return a.trailer(a.md()) }
func (a *attempt) CloseSend() error     { return nil }
func (a *attempt) Context() context.Context {
	if a.stub.foreign {
		return a.ctx
	}
	return peer.NewContext(a.ctx, &peer.Peer{})
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
