// Command serviceconfig hedges as gRPC's own hedgingPolicy defines, with a fixed delay and
// throttling. Methods without a policy are not hedged.
//
//	cd examples && go run ./serviceconfig
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
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

// config is a service config as gRPC defines it. gRPC itself ignores the hedgingPolicy and applies
// everything else.
const config = `{
	"methodConfig": [{
		"name": [{"service": "helloworld.Greeter", "method": "SayHello"}],
		"timeout": "2s",
		"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.02s", "nonFatalStatusCodes": ["UNAVAILABLE"]}
	}],
	"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
}`

const (
	calls       = 4_000
	concurrency = 20
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterGreeterServer(server, greeter{})
	go server.Serve(listener)
	defer server.Stop()
	target := listener.Addr().String()

	s, err := hedge.New(hedge.WithServiceConfig(config))
	if err != nil {
		return err
	}
	plain, err := measure(target)
	if err != nil {
		return err
	}
	hedged, err := measure(target, interceptor.DialOptions(s, grpc.WithDefaultServiceConfig(config))...)
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "%d calls, %d at a time. One attempt in fifty takes 100 ms instead of 5 ms.\n"+
		"Each call has up to 3 attempts, 20 ms apart, as its hedgingPolicy says.\n\n", calls, concurrency)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tp50\tp99")
	fmt.Fprintf(table, "without hedging\t%v\t%v\n", percentile(plain, 50), percentile(plain, 99))
	fmt.Fprintf(table, "with hedging\t%v\t%v\n", percentile(hedged, 50), percentile(hedged, 99))
	table.Flush()
	stats := s.Stats()
	fmt.Fprintf(w, "\nExtra load: %.1f%%. %d hedges were sent, %d answered first.\n", 100*stats.HedgeRate(),
		stats.Hedges, stats.HedgeWins)
	return nil
}

// measure makes all calls over a connection of its own and returns their latencies.
func measure(target string, options ...grpc.DialOption) ([]time.Duration, error) {
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := pb.NewGreeterClient(conn)

	latencies := make([]time.Duration, calls)
	errs := make([]error, concurrency)
	var wg sync.WaitGroup
	for caller := range concurrency {
		wg.Go(func() {
			for i := caller; i < calls && errs[caller] == nil; i += concurrency {
				start := time.Now()
				_, errs[caller] = client.SayHello(context.Background(), &pb.HelloRequest{Name: "hedge"})
				latencies[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// percentile returns the given percentile, to a tenth of a millisecond.
func percentile(latencies []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[(len(sorted)*percent-1)/100].Round(100 * time.Microsecond)
}

// greeter is a server that is sometimes slow.
type greeter struct{ pb.UnimplementedGreeterServer }

func (greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	delay := 5 * time.Millisecond
	if rand.IntN(50) == 0 {
		delay = 100 * time.Millisecond
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done(): // another attempt has answered
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
