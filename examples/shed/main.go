// Command shed is a server that turns hedges away while all its database connections are in use, or
// its goroutines wait for a processor: few while it is idle, and many while it is busy. A call goes
// on with its primary when its hedge is turned away.
//
//	cd examples && go run ./shed
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/shed"
)

const (
	calls = 800                  // by each client in each phase
	pace  = 2 * time.Millisecond // between the starts of two calls
	pool  = 40                   // database connections
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	greeter := &greeter{connections: make(chan struct{}, pool)}
	bound, err := shed.New(shed.WithBusy(func() bool { return len(greeter.connections) == pool }))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(bound.Unary),
		grpc.ChainStreamInterceptor(bound.Stream))
	pb.RegisterGreeterServer(server, greeter)
	go server.Serve(listener)
	defer server.Stop()

	s, err := hedge.New(hedge.WithReadOnlyMethods(pb.Greeter_SayHello_FullMethodName))
	if err != nil {
		return err
	}
	target, creds := listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())
	plain, err := grpc.NewClient(target, creds)
	if err != nil {
		return err
	}
	defer plain.Close()
	hedged, err := grpc.NewClient(target, interceptor.DialOptions(s, creds)...)
	if err != nil {
		return err
	}
	defer hedged.Close()

	fmt.Fprintf(w, "%d calls by each client in each phase, one every %v. Idle, an attempt takes 5 ms, and one in "+
		"fifty 100 ms;\n"+
		"busy, each attempt takes 38 ms, so that nearly all of %d database connections are in use.\n\n", calls, pace, pool)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tp99 without\tp99 with hedging\thedges\tturned away\tfailed calls")
	for _, phase := range []string{"idle", "busy"} {
		greeter.busy.Store(phase == "busy")
		hedgesBefore, shedBefore := s.Stats().Hedges, bound.Shed()
		var failed atomic.Int64
		var without, with []time.Duration
		var wg sync.WaitGroup
		wg.Go(func() { without = measure(plain, &failed) })
		wg.Go(func() { with = measure(hedged, &failed) })
		wg.Wait()
		fmt.Fprintf(table, "%s\t%v\t%v\t%d\t%d\t%d\n", phase, percentile(without, 99), percentile(with, 99),
			s.Stats().Hedges-hedgesBefore, bound.Shed()-shedBefore, failed.Load())
	}
	return table.Flush()
}

// measure makes all calls at a steady pace, returns their latencies and counts the failures.
func measure(conn *grpc.ClientConn, failed *atomic.Int64) []time.Duration {
	client := pb.NewGreeterClient(conn)
	latencies := make([]time.Duration, calls)
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	var wg sync.WaitGroup
	for i := range calls {
		<-ticks.C
		wg.Go(func() {
			start := time.Now()
			if _, err := client.SayHello(context.Background(), &pb.HelloRequest{Name: "hedge"}); err != nil {
				failed.Add(1)
			}
			latencies[i] = time.Since(start)
		})
	}
	wg.Wait()
	return latencies
}

// percentile returns the given percentile, to a tenth of a millisecond.
func percentile(latencies []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[(len(sorted)*percent-1)/100].Round(100 * time.Microsecond)
}

// greeter is a server that needs a database connection for each call. It is sometimes slow, or
// always while it is busy.
type greeter struct {
	pb.UnimplementedGreeterServer
	busy        atomic.Bool
	connections chan struct{}
}

func (g *greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	select {
	case g.connections <- struct{}{}:
		defer func() { <-g.connections }()
	case <-ctx.Done(): // another attempt has answered
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	delay := 5 * time.Millisecond
	switch {
	case g.busy.Load():
		delay = 38 * time.Millisecond
	case rand.IntN(50) == 0:
		delay = 100 * time.Millisecond
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
