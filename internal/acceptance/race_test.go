package acceptance_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// While 64 goroutines call, unary methods and streams, one updates the scheduler four thousand times a second. What each call reports,
// what the server saw of its attempts, and which functions of the user it called, are those of one configuration that was in
// force while it began.
func TestRule20_UpdateUnderLoad(t *testing.T) {
	const callers, updates = 64, 4 // updates a millisecond
	rounds := longtest.Size(8, 150)
	synctest.Test(t, func(t *testing.T) {
		u := newUpdated(t)
		var over atomic.Bool
		var updater, group sync.WaitGroup
		updater.Go(func() {
			for !over.Load() {
				for range updates {
					u.update(t)
					runtime.Gosched()
				}
				time.Sleep(ms)
			}
		})
		for caller := range callers {
			group.Go(func() {
				time.Sleep(time.Duration(caller) * ms)
				for i := range rounds {
					u.check(t, u.call(uint64(caller*rounds+i), u.ways[(caller+i)%len(u.ways)]))
				}
			})
		}
		group.Wait()
		over.Store(true)
		updater.Wait()
		u.conn.Close()
		synctest.Wait()
		if got, want := u.scheduler.Stats().Calls, int64(callers*rounds); got != want {
			t.Errorf("%d calls counted, %d made", got, want)
		}
		t.Logf("%d updates; %d calls, by configuration %v; %d began while one was being replaced",
			u.done.Load(), callers*rounds, u.of, u.between)
		for _, c := range u.configs {
			// The machine decides which calls begin under which configuration; enough of them must, for the test to say something.
			if least := callers * rounds / len(u.configs) / 16; u.of[c.name] < least {
				t.Errorf("%d calls under %s, want at least %d", u.of[c.name], c.name, least)
			}
		}
	})
}

// aConfig is one of the configurations that follow each other: what it says of each method, and what is called by its name.
type aConfig struct {
	name    string
	options []hedge.Option
	says    said            // of every method
	but     map[string]said // of some
}

// said is what a configuration says of a method.
type said struct {
	reason   stats.Reason // why no call has a hedge; "" if they have
	delay    time.Duration
	most     int // hedges
	nonFatal []codes.Code
}

var (
	oneCode, otherCode = codes.Unavailable, codes.Aborted

	unary  = testpb.TestService_Unary_FullMethodName
	ruled  = testpb.TestService_UnaryIdempotent_FullMethodName
	reads  = testpb.TestService_UnaryNoSideEffects_FullMethodName
	first  = testpb.TestService_ServerStream_FullMethodName
	second = testpb.TestService_ServerStreamIdempotent_FullMethodName
)

func replacingEachOther() []aConfig {
	fixed := func(d time.Duration) hedge.Option { return hedge.WithTrigger(hedge.Fixed(d)) }
	return []aConfig{
		{
			name:    "A",
			options: []hedge.Option{fixed(5 * ms), hedge.WithMaxHedges(1), hedge.WithNonFatalCodes(oneCode)},
			says:    said{"", 5 * ms, 1, []codes.Code{oneCode}},
		},
		{
			name:    "B",
			options: []hedge.Option{fixed(20 * ms), hedge.WithMaxHedges(2), hedge.WithNonFatalCodes(otherCode)},
			says:    said{"", 20 * ms, 2, []codes.Code{otherCode}},
		},
		{name: "off", options: []hedge.Option{fixed(3 * ms), hedge.WithOff(true)}, says: said{reason: stats.SwitchedOff}},
		{
			name: "rules",
			options: []hedge.Option{
				fixed(11 * ms), hedge.WithMaxHedges(3), hedge.WithNonFatalCodes(oneCode, otherCode),
				hedge.WithMethodOptions("/*/UnaryIdem*", fixed(7*ms), hedge.WithMaxHedges(2), hedge.WithNonFatalCodes(), hedge.WithBudgetPercent(400)),
				hedge.WithMethodOptions(second, hedge.WithOff(true)),
				hedge.WithTargetOptions("*", hedge.WithMethodOptions(first, hedge.WithMaxHedges(1))),
			},
			says: said{"", 11 * ms, 3, []codes.Code{oneCode, otherCode}},
			but: map[string]said{
				ruled:  {"", 7 * ms, 2, nil},
				second: {reason: stats.SwitchedOff},
				first:  {"", 11 * ms, 1, []codes.Code{oneCode, otherCode}},
			},
		},
		{name: "dry run", options: []hedge.Option{fixed(13 * ms), hedge.WithDryRun(true)}, says: said{reason: stats.DryRun}},
	}
}

// Every primary fails after primaryFails, and every hedge answers hedgeTakes after it was sent. No hedge of any configuration is due
// when an attempt ends.
const primaryFails, hedgeTakes = 45 * time.Millisecond, 45 * time.Millisecond

// of returns what comes of a call whose primary fails with a code.
func (s said) of(code codes.Code) observed {
	o := observed{reason: s.reason, code: code, sent: []time.Duration{0}}
	if s.reason != "" {
		return o
	}
	o.delay = s.delay
	end := primaryFails
	if slices.Contains(s.nonFatal, code) {
		o.code, o.winner, end = codes.OK, 1, s.delay+hedgeTakes
	}
	for n := 1; n <= s.most && time.Duration(n)*s.delay < end; n++ {
		o.sent = append(o.sent, time.Duration(n)*s.delay)
	}
	return o
}

// observed is what is seen of a call from outside.
type observed struct {
	reason stats.Reason
	delay  time.Duration
	code   codes.Code
	winner int
	sent   []time.Duration // when the server got each attempt, by its number
}

// aCall is one call. The server and the user's functions write to it; what is written after it has ended, such as the
// end of a loser, is of no interest.
type aCall struct {
	id       uint64
	method   string
	start    time.Time
	from, to int64 // the configurations that were in force while it began

	mu      sync.Mutex
	sent    []time.Duration
	called  map[string]bool // whose functions it called
	seen    observed
	outcome stats.Outcome
}

type aCallKey struct{}

func (c *aCall) note(config string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called[config] = true
}

// updated is a scheduler that is updated all the time, with a client and a server.
type updated struct {
	scheduler *hedge.Scheduler
	configs   []aConfig
	conn      *grpc.ClientConn
	ways      []way

	begun, done atomic.Int64 // updates
	calls       sync.Map     // id → *aCall

	mu      sync.Mutex
	of      map[string]int // calls by the configuration that they were made under
	between int            // calls that began while one was being replaced
}

// way is a method and how it is called.
type way struct {
	method string
	call   func(ctx context.Context, in *testpb.Request, opts ...grpc.CallOption) error
}

func newUpdated(t *testing.T) *updated {
	t.Helper()
	u := &updated{configs: replacingEachOther(), of: map[string]int{}}
	for i := range u.configs {
		u.configs[i].options = append(u.configs[i].options, u.witnesses(u.configs[i].name)...)
	}
	s := hedgetest.New(t, u.configs[0].options...)
	u.scheduler = s
	conn := testserver.ServiceT(t, &failingServer{calls: &u.calls}, append(hedgetest.Interceptors(s),
		grpc.WithChainUnaryInterceptor(u.afterUnary), grpc.WithChainStreamInterceptor(u.afterStream))...)
	u.conn = conn
	client := testpb.NewTestServiceClient(conn)
	u.ways = []way{
		{unary, unaryWay(client.Unary)},
		{first, streamWay(client.ServerStream)},
		{ruled, unaryWay(client.UnaryIdempotent)},
		{second, streamWay(client.ServerStreamIdempotent)},
		{reads, unaryWay(client.UnaryNoSideEffects)},
	}
	return u
}

// witnesses are the options that every configuration has, with functions that note its name.
func (u *updated) witnesses(name string) []hedge.Option {
	note := func(ctx context.Context) { ctx.Value(aCallKey{}).(*aCall).note(name) }
	return []hedge.Option{
		hedge.WithAllMethods(), hedge.WithGuard(false), hedge.WithBudgetPercent(400),
		hedge.WithClass(func(ctx context.Context, _ string, _ any) string { note(ctx); return "class" }),
		hedge.WithCost(func(ctx context.Context, _ string, _ any) float64 { note(ctx); return 1 }),
	}
}

func (u *updated) update(t *testing.T) {
	n := u.begun.Add(1)
	if err := u.scheduler.Update(u.configs[n%int64(len(u.configs))].options...); err != nil {
		t.Error(err)
	}
	u.done.Store(n)
}

// afterUnary runs for each attempt. When the primary gets there, its call has begun.
func (u *updated) afterUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	u.hasBegun(ctx)
	return invoker(ctx, method, req, reply, cc, opts...)
}

func (u *updated) afterStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	u.hasBegun(ctx)
	return streamer(ctx, desc, cc, method, opts...)
}

func (u *updated) hasBegun(ctx context.Context) {
	c := ctx.Value(aCallKey{}).(*aCall)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.to < 0 {
		c.to = u.begun.Load()
	}
}

// call makes a call and returns what was seen of it.
func (u *updated) call(id uint64, w way) *aCall {
	c := &aCall{id: id, method: w.method, start: time.Now(), from: u.done.Load(), to: -1, called: map[string]bool{}}
	u.calls.Store(id, c)
	defer u.calls.Delete(id)
	err := w.call(context.WithValue(context.Background(), aCallKey{}, c), &testpb.Request{Id: id}, hedge.Report(&c.outcome))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = observed{
		reason: c.outcome.Reason, delay: c.outcome.Delay, code: status.Code(err), winner: c.outcome.Winner, sent: slices.Clone(c.sent),
	}
	return c
}

// check compares a call with each configuration that was in force while it began.
func (u *updated) check(t *testing.T, c *aCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wants []string
	for v := c.from; v <= c.to; v++ {
		config := u.configs[v%int64(len(u.configs))]
		want := config.expects(c)
		wants = append(wants, fmt.Sprintf("%s: %+v", config.name, want))
		if fmt.Sprint(want) != fmt.Sprint(c.seen) || c.outcome.Attempts != len(want.sent) {
			continue
		}
		if len(c.called) > 1 || len(c.called) == 1 && !c.called[config.name] || len(want.sent) > 1 && len(c.called) == 0 {
			continue
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.of[config.name]++
		if c.to > c.from {
			u.between++
		}
		return
	}
	t.Errorf("%s: %+v, %d attempts, functions of %v; want one of:\n%s", c.method, c.seen, c.outcome.Attempts, c.called, strings.Join(wants, "\n"))
}

func (a *aConfig) expects(c *aCall) observed {
	s, ok := a.but[c.method]
	if !ok {
		s = a.says
	}
	return s.of(codeFor(c.id))
}

// codeFor is with what the primary of a call fails.
func codeFor(id uint64) codes.Code { return []codes.Code{oneCode, otherCode}[id/7%2] }

// failingServer is one whose primaries fail.
type failingServer struct {
	testpb.UnimplementedTestServiceServer
	calls *sync.Map
}

// serve waits as an attempt does, and returns its error.
func (f *failingServer) serve(ctx context.Context, in *testpb.Request) error {
	found, ok := f.calls.Load(in.Id)
	if !ok {
		return status.Error(codes.Internal, "the call has ended")
	}
	c := found.(*aCall)
	c.mu.Lock()
	c.sent = append(c.sent, time.Since(c.start))
	c.mu.Unlock()
	n := hedge.PreviousAttempts(ctx)
	wait := hedgeTakes
	if n == 0 {
		wait = primaryFails
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if n == 0 {
		return status.Error(codeFor(in.Id), "as every primary")
	}
	return nil
}

func (f *failingServer) Unary(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	return &testpb.Reply{Id: in.Id}, f.serve(ctx, in)
}

func (f *failingServer) UnaryIdempotent(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	return f.Unary(ctx, in)
}

func (f *failingServer) UnaryNoSideEffects(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	return f.Unary(ctx, in)
}

func (f *failingServer) ServerStream(in *testpb.Request, s grpc.ServerStreamingServer[testpb.Reply]) error {
	if err := f.serve(s.Context(), in); err != nil {
		return err
	}
	return s.Send(&testpb.Reply{Id: in.Id})
}

func (f *failingServer) ServerStreamIdempotent(in *testpb.Request, s grpc.ServerStreamingServer[testpb.Reply]) error {
	return f.ServerStream(in, s)
}

func unaryWay(call func(context.Context, *testpb.Request, ...grpc.CallOption) (*testpb.Reply, error)) func(context.Context, *testpb.Request, ...grpc.CallOption) error {
	return func(ctx context.Context, in *testpb.Request, opts ...grpc.CallOption) error {
		_, err := call(ctx, in, opts...)
		return err
	}
}

func streamWay(open func(context.Context, *testpb.Request, ...grpc.CallOption) (grpc.ServerStreamingClient[testpb.Reply], error)) func(context.Context, *testpb.Request, ...grpc.CallOption) error {
	return func(ctx context.Context, in *testpb.Request, opts ...grpc.CallOption) error {
		s, err := open(ctx, in, opts...)
		if err != nil {
			return err
		}
		for err == nil {
			_, err = s.Recv()
		}
		if err == io.EOF {
			return nil
		}
		return err
	}
}
