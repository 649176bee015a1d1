package testserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	testpb "github.com/grpchedge/hedge/proto"
)

// patience bounds the wait for an event that is expected within milliseconds. No test fails because
// the machine is busy.
const patience = 5 * time.Minute

// ConnectT waits until a connection is ready, as it must be before a call on it is hedged.
func ConnectT(tb TB, conn *grpc.ClientConn) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for conn.Connect(); ; {
		state := conn.GetState()
		if state == connectivity.Ready {
			return
		}
		if !conn.WaitForStateChange(ctx, state) {
			tb.Fatalf("not connected: %v", state)
		}
	}
}

// DistributionT is [ParseDistribution] for a test, which fails if there is no such distribution.
func DistributionT(tb TB, name string) Distribution {
	tb.Helper()
	distribution, err := ParseDistribution(name)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return distribution
}

// HandlerT starts a server in memory that has one handler for all methods, and returns a connection
// that is ready. The test closes both at its end.
func HandlerT(tb TB, handler grpc.StreamHandler, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	return serveT(tb, grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(handler)), options)
}

// ServiceT is HandlerT for an implementation of the test service.
func ServiceT(tb TB, service testpb.TestServiceServer, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	testpb.RegisterTestServiceServer(server, service)
	return serveT(tb, server, options)
}

func serveT(tb TB, server *grpc.Server, options []grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	listener := NewListener()
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(server.Stop)
	options = append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.Dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}, options...)
	conn, err := grpc.NewClient("passthrough:///memory", options...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	ConnectT(tb, conn)
	return conn
}

// SlowPrimary starts a server for an example. It sends headers at once, answers primaries after 2 s,
// and hedges at once. The client is connected; stop closes both.
func SlowPrimary(options ...grpc.DialOption) (client testpb.TestServiceClient, stop func()) {
	cluster := StartT(example{}, Config{Name: "example", Script: func(a Attempt) Plan {
		if a.Number == 0 {
			return Plan{HeaderAtOnce: true, Delay: 2 * time.Second}
		}
		return Plan{HeaderAtOnce: true}
	}})
	conn := cluster.ClientT(example{}, options...)
	ConnectT(example{}, conn)
	return testpb.NewTestServiceClient(conn), cluster.Close
}

// example is the TB of an example, which panics if it fails.
type example struct{}

func (example) Helper()                           {}
func (example) Cleanup(func())                    {}
func (example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// WaitIdleT is [Cluster.WaitIdle] for a test, which fails if attempts are left.
func (c *Cluster) WaitIdleT(tb TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.WaitIdle(ctx); err != nil {
		tb.Fatalf("attempts are left at the server: %v", err)
	}
}

// ByNumber is a script that goes by the number of the attempt.
func ByNumber(plans ...Plan) Script {
	return func(a Attempt) Plan { return plans[a.Number] }
}

// Ties has the two attempts of a call meet at the server, so that they answer within microseconds
// of each other.
type Ties struct {
	mu      sync.Mutex
	waiting map[uint64]chan struct{}
}

// Meet waits for the other attempt of the request with the given id and then for up to 20 µs more;
// or it returns the error of the context that ends first.
func (t *Ties) Meet(ctx context.Context, id uint64) error {
	t.mu.Lock()
	met, ok := t.waiting[id]
	if ok {
		close(met)
		delete(t.waiting, id)
	} else {
		met = make(chan struct{})
		if t.waiting == nil {
			t.waiting = map[uint64]chan struct{}{}
		}
		t.waiting[id] = met
	}
	t.mu.Unlock()
	select {
	case <-met:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Spun, for a timer is not as fine.
	for began, pause := time.Now(), time.Duration(rand.IntN(20))*time.Microsecond; time.Since(began) < pause; {
	}
	return nil
}

// Heap returns the size of the reachable heap, in bytes.
func Heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
