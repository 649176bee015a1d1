package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
	"github.com/grpchedge/hedge/stream"
)

// Load is the load of one run.
type Load struct {
	Callers int
	Rate    float64 // calls that start in a second, as far as there are callers; 0: a caller calls again at once
	For     time.Duration
	Streams bool // server streams instead of unary calls
	Bytes   int  // payload of a request
	// Deadline of a call, if above 0. A call that runs out of it has neither failed nor a latency.
	Deadline time.Duration
	Options  []hedge.Option
	Dial     []grpc.DialOption // a load-balancing policy
}

// plain is the budget of a client that does not hedge at all.
const plain = -1

// Result has the outcomes of the calls of a run.
type Result struct {
	Calls, Failed int
	// replies to another request, which have failed; calls that ran out of their time, which have
	// not
	Wrong, Late int
	First       error           // of a call that failed
	Latencies   []time.Duration // of the calls that did not, in order; of a stream, the time to its first message
	Wire        testserver.MeterCounts
	Target      stats.Method
}

// P99 returns the 99th percentile of the latencies.
func (r *Result) P99() time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[(len(r.Latencies)*99+99)/100-1]
}

// Run connects to addresses and makes the calls. The budget is in percent; 0 is the library's own.
func (l Load) Run(ctx context.Context, addresses []string, dial dialer, budget float64) (*Result, error) {
	meter := testserver.NewMeter(dial)
	names := manual.NewBuilderWithScheme("servers")
	var state resolver.State
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	names.InitialState(state)
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(meter.Dial),
		grpc.WithResolvers(names),
	}, l.Dial...)
	s, err := l.scheduler(budget)
	if err != nil {
		return nil, err
	}
	if s != nil {
		options = append(options, grpc.WithUnaryInterceptor(interceptor.Unary(s)),
			grpc.WithStreamInterceptor(stream.Interceptor(s)))
	}
	conn, err := grpc.NewClient("servers:///localhost", options...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := connected(ctx, conn); err != nil {
		return nil, err
	}
	client := testpb.NewTestServiceClient(conn)
	result := l.calls(ctx, func(ctx context.Context, id uint64) (time.Duration, error) { return l.call(ctx, client, id) })
	result.Wire = meter.Counts()
	if s != nil {
		if targets := s.Methods(); len(targets) > 0 {
			result.Target = targets[0]
		}
	}
	return result, nil
}

// scheduler returns the scheduler of a client with a budget; nil for plain.
func (l Load) scheduler(budget float64) (*hedge.Scheduler, error) {
	if budget == plain {
		return nil, nil
	}
	chosen := append([]hedge.Option{hedge.WithAllMethods()}, l.Options...)
	if budget > 0 {
		chosen = append(chosen, hedge.WithBudgetPercent(budget))
	}
	return hedge.New(chosen...)
}

// dialer is a function as grpc.WithContextDialer takes it.
type dialer = func(context.Context, string) (net.Conn, error)

// connected waits until the connection is ready.
func connected(ctx context.Context, conn *grpc.ClientConn) error {
	for conn.Connect(); ; {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("not connected: %w", ctx.Err())
		}
	}
}

// calls makes the calls and returns when all have ended.
func (l Load) calls(ctx context.Context, call func(ctx context.Context, id uint64) (time.Duration, error)) *Result {
	var (
		began   = time.Now()
		next    atomic.Int64
		mu      sync.Mutex
		result  Result
		callers sync.WaitGroup
	)
	for range l.Callers {
		callers.Go(func() {
			var mine Result
			for ctx.Err() == nil {
				id := next.Add(1)
				if l.Rate > 0 {
					due := time.Duration(float64(id) / l.Rate * float64(time.Second))
					if due >= l.For {
						break
					}
					time.Sleep(due - time.Since(began))
				}
				if time.Since(began) >= l.For {
					break
				}
				took, err := call(ctx, uint64(id))
				mine.Calls++
				switch {
				case err == nil:
					mine.Latencies = append(mine.Latencies, took)
				case l.Deadline > 0 && (status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)):
					mine.Late++
				default:
					mine.Failed++
					if errors.Is(err, errWrong) {
						mine.Wrong++
					}
					if mine.First == nil {
						mine.First = fmt.Errorf("call %d, %v after the start: %w", id, time.Since(began).Round(time.Millisecond), err)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			result.Calls += mine.Calls
			result.Failed += mine.Failed
			result.Wrong += mine.Wrong
			result.Late += mine.Late
			result.Latencies = append(result.Latencies, mine.Latencies...)
			if result.First == nil {
				result.First = mine.First
			}
		})
	}
	callers.Wait()
	slices.Sort(result.Latencies)
	return &result
}

const messages = 3 // of a stream

// errWrong is a reply that is none to the request.
var errWrong = errors.New("a reply that is none to the request")

// call makes one call and returns how long its caller waited: of a stream, for the first message.
func (l Load) call(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if l.Deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, l.Deadline)
		defer cancel()
	}
	start := time.Now()
	if !l.Streams {
		reply, err := client.Unary(ctx, &testpb.Request{Id: id, Payload: make([]byte, l.Bytes)})
		took := time.Since(start)
		if err == nil && reply.GetId() != id {
			err = fmt.Errorf("%w: its id is %d", errWrong, reply.GetId())
		}
		return took, err
	}
	st, err := client.ServerStream(ctx, &testpb.Request{Id: id, Messages: messages})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	for seq := range messages {
		reply, err := st.Recv()
		if err != nil {
			return 0, err
		}
		if seq == 0 {
			took = time.Since(start)
		}
		if reply.GetId() != id || reply.GetSequence() != uint32(seq) {
			return 0, fmt.Errorf("%w: it is number %d of %d, want %d", errWrong, reply.GetSequence(), reply.GetId(), seq)
		}
	}
	if _, err := st.Recv(); !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("the stream's end: %w", err)
	}
	return took, nil
}
