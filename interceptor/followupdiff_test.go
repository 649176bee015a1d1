package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/model"
	testpb "github.com/grpchedge/hedge/proto"
)

// plannedCall is a call of TestFollowUp_ChangesNothing: what its attempts answer, each at a time of its own, and what its caller does.
type plannedCall struct {
	after    time.Duration // the caller's last one ended
	stream   bool
	plans    []testserver.Plan // by the attempt's number; all give the same answer
	messages int
	deadline time.Duration // 0: none
	cancel   time.Duration // 0: never
	abandons int           // after how many messages the caller cancels; 0: never
}

func drawCalls(d model.Draw, n int) (calls []plannedCall) {
	for range n {
		c := plannedCall{after: d.Within(20 * ms), stream: d.IntN(2) == 0, messages: d.IntN(4)}
		answer := testserver.Plan{Interval: d.Within(5 * ms), Messages: c.messages, Empty: c.messages == 0, PayloadBytes: 1 + d.IntN(100)}
		if d.IntN(3) == 0 {
			answer.Code = []codes.Code{codes.NotFound, codes.Unavailable, codes.Internal}[d.IntN(3)]
			if c.stream {
				answer.After = c.messages
			}
		}
		for n := range 3 {
			answer.Delay = d.Within(30 * ms)
			answer.Header, answer.Trailer = metadata.Pairs("attempt", fmt.Sprint(n)), metadata.Pairs("attempt", fmt.Sprint(n))
			c.plans = append(c.plans, answer)
		}
		switch d.IntN(6) {
		case 0:
			c.deadline = d.Within(40 * ms)
		case 1:
			c.cancel = d.Within(40 * ms)
		case 2:
			c.abandons = d.IntN(3)
		}
		calls = append(calls, c)
	}
	return calls
}

// callOutcome is what a caller gets of a call.
type callOutcome struct {
	took            time.Duration
	err             string
	code            codes.Code
	messages        int
	header, trailer []string // the number of the attempt
	events          []string // of OnFinish, and the return
}

// caller makes one call after the other with the same request and the same reply, which it uses again at once.
type caller struct {
	client testpb.TestServiceClient
	conn   *grpc.ClientConn
	id     uint64 // of its first call
	req    testpb.Request
	reply  testpb.Reply
}

func (c *caller) make(t *testing.T, n int, p plannedCall) (o callOutcome) {
	time.Sleep(p.after)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if p.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, p.deadline)
		defer cancel()
	}
	if p.cancel > 0 {
		defer time.AfterFunc(p.cancel, cancel).Stop()
	}
	c.req.Id, c.req.Messages = c.id+uint64(n), uint32(p.messages)
	c.req.Payload = append(c.req.Payload[:0], "request of this call"...)
	var header, trailer metadata.MD
	began := time.Now()
	finished := func(name string) grpc.CallOption {
		return grpc.OnFinish(func(err error) { o.events = append(o.events, fmt.Sprint(name, " ", status.Code(err))) })
	}
	options := []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer), finished("first"), finished("second")}
	var err error
	if p.stream {
		err = c.receive(ctx, t, p, cancel, &o, options)
	} else if err = c.conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, &c.req, &c.reply, options...); err == nil {
		o.messages = 1
		if wrong := testserver.Check(&c.req, 0, &c.reply); wrong != nil {
			t.Error(wrong)
		}
	}
	o.took, o.code = time.Since(began), status.Code(err)
	for i := range c.req.Payload {
		c.req.Payload[i] = 'x'
	}
	c.req.Id, c.req.Messages = 1<<60, 1000
	if p.stream && o.code != codes.OK { // gRPC ends a stream that was left in its own time
		synctest.Wait()
	}
	o.events = append(o.events, "returned")
	if left := o.code == codes.Canceled || o.code == codes.DeadlineExceeded; !left { // what comes at that instant is up to chance
		o.err = fmt.Sprint(err)
		o.header, o.trailer = header.Get("attempt"), trailer.Get("attempt")
	}
	return o
}

func (c *caller) receive(ctx context.Context, t *testing.T, p plannedCall, cancel func(), o *callOutcome, options []grpc.CallOption) error {
	st, err := c.client.ServerStream(ctx, &c.req, options...)
	if err != nil {
		return err
	}
	for {
		if err := st.RecvMsg(&c.reply); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if wrong := testserver.Check(&c.req, uint32(o.messages), &c.reply); wrong != nil {
			t.Error(wrong)
		}
		if o.messages++; o.messages == p.abandons {
			cancel()
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// playCalls lets a few callers make their calls at the same time, and returns what they got, and how many attempts of each call
// reached the server.
func playCalls(t *testing.T, calls [][]plannedCall, options ...grpc.DialOption) (outcomes [][]callOutcome, attempts map[uint64]int) {
	byID := func(id uint64) plannedCall { return calls[id/1000][id%1000] }
	cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
		return byID(a.ID).plans[a.Number]
	}})
	conn := cluster.ClientT(t, options...)
	testserver.ConnectT(t, conn)
	outcomes = make([][]callOutcome, len(calls))
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			c := &caller{client: testpb.NewTestServiceClient(conn), conn: conn, id: 1000 * uint64(i)}
			for n, p := range calls[i] {
				outcomes[i] = append(outcomes[i], c.make(t, n, p))
				had := proto.Clone(&c.reply)
				time.Sleep(40 * ms) // losers answer meanwhile
				if !proto.Equal(had, &c.reply) {
					t.Errorf("call %d: the reply has changed after the call: %v, was %v", 1000*i+n, &c.reply, had)
				}
			}
		})
	}
	all.Wait()
	time.Sleep(time.Second)
	synctest.Wait()
	if n := cluster.Counts().InFlight; n > 0 {
		t.Errorf("%d attempts are left", n)
	}
	attempts = map[uint64]int{}
	for _, r := range cluster.Records() {
		attempts[r.ID]++
	}
	return outcomes, attempts
}

// TestFollowUp_ChangesNothing: callers get the same, at the same time, whether losers are followed or not, and as many attempts reach
// the servers. But for whose attempt it is, that is what plain gRPC gives, unless a caller leaves.
func TestFollowUp_ChangesNothing(t *testing.T) {
	var hedged, followed int
	schedules := model.Each(t, model.Counts{Short: 5, Long: 30}, 1, func(t *testing.T) func(*testing.T, uint64) {
		return func(t *testing.T, seed uint64) {
			d := model.New(seed, 3)
			var calls [][]plannedCall
			for range 4 {
				calls = append(calls, drawCalls(d, 30))
			}
			with := func(percent float64) ([][]callOutcome, map[uint64]int) {
				s := hedgetest.Fixed(t, 8*ms, hedge.WithMaxHedges(2), hedge.WithReadOnlyMethods("/*/*"), hedge.WithoutGuard(), hedge.WithFollowUp(percent))
				outcomes, attempts := playCalls(t, calls, hedgetest.Interceptors(s)...)
				hedged += int(s.Stats().HedgeWins)
				for _, row := range s.Targets() {
					followed += row.Gain.Followed
				}
				return outcomes, attempts
			}
			plain, _ := playCalls(t, calls)
			without, attempts := with(0)
			outcomes, same := with(100)
			if !reflect.DeepEqual(attempts, same) {
				t.Errorf("other attempts reach the servers: %v, want %v", same, attempts)
			}
			for i := range calls {
				for n, p := range calls[i] {
					got, want, bare := outcomes[i][n], without[i][n], plain[i][n]
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%+v:\n%+v\nwith its primary followed, without\n%+v", p, got, want)
					}
					stays := p.deadline == 0 && p.cancel == 0
					if stays && (got.code != bare.code || got.messages != bare.messages || !reflect.DeepEqual(got.events, bare.events)) {
						t.Errorf("%+v:\n%+v, plain\n%+v", p, got, bare)
					}
				}
			}
		}
	})
	if t.Logf("%d calls won by hedges, %d losers followed", hedged, followed); schedules >= 5 && followed < 50 {
		t.Error("too few losers are followed: these schedules test little")
	}
}
