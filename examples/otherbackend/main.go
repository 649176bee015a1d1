// Command otherbackend sends a hedge to a backend that no previous attempt has used. One of two
// backends stalls from time to time, as in a garbage collection. A hedge that goes to the stalled
// backend is as slow as its primary.
//
//	cd examples && go run ./otherbackend
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer" // registers hedge_other_backend
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stats"
)

const (
	roundRobin   = `{"loadBalancingConfig": [{"round_robin": {}}]}`
	otherBackend = `{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`

	calls = 1_000
	pace  = 3 * time.Millisecond // between the starts of two calls
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	// A real client has its backends from DNS; this one has a list.
	backends := manual.NewBuilderWithScheme("backends")
	var addresses []resolver.Address
	for i := range 2 {
		listener, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			return err
		}
		server := grpc.NewServer()
		pb.RegisterGreeterServer(server, &greeter{start: time.Now(), stalls: i == 0})
		go server.Serve(listener)
		defer server.Stop()
		addresses = append(addresses, resolver.Address{Addr: listener.Addr().String()})
	}
	backends.InitialState(resolver.State{Addresses: addresses})

	clients := []struct {
		name, config string
		hedging      bool
		latencies    []time.Duration
		err          error
		stats        stats.Counts
	}{
		{name: "without hedging", config: roundRobin},
		{name: "hedges by round_robin", config: roundRobin, hedging: true},
		{name: "hedges to another backend", config: otherBackend, hedging: true},
	}
	var wg sync.WaitGroup
	for i := range clients { // at the same time, so that all meet the same stalls
		c := &clients[i]
		wg.Go(func() {
			options := []grpc.DialOption{grpc.WithResolvers(backends), grpc.WithDefaultServiceConfig(c.config)}
			var s *hedge.Scheduler
			if c.hedging {
				if s, c.err = hedge.New(hedge.WithReadOnlyMethods(pb.Greeter_SayHello_FullMethodName)); c.err != nil {
					return
				}
				options = interceptor.DialOptions(s, options...)
			}
			c.latencies, c.err = measure(options...)
			c.stats = s.Stats() // zero without a scheduler
		})
	}
	wg.Wait()

	fmt.Fprintf(w, "%d calls by each client, one every %v, to two backends. One of them stalls for 100 ms of each "+
		"second.\n\n", calls, pace)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tp50\tp99\textra load")
	for _, c := range clients {
		if c.err != nil {
			return c.err
		}
		fmt.Fprintf(table, "%s\t%v\t%v\t%.1f%%\n", c.name, percentile(c.latencies, 50),
			percentile(c.latencies, 99), 100*c.stats.HedgeRate())
	}
	return table.Flush()
}

// measure makes all calls over a connection of its own, at a steady pace, and returns their
// latencies.
func measure(options ...grpc.DialOption) ([]time.Duration, error) {
	conn, err := grpc.NewClient("backends:///",
		append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := pb.NewGreeterClient(conn)

	latencies := make([]time.Duration, calls)
	errs := make([]error, calls)
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	var wg sync.WaitGroup
	for i := range calls {
		<-ticks.C
		wg.Go(func() {
			start := time.Now()
			_, errs[i] = client.SayHello(context.Background(), &pb.HelloRequest{Name: "hedge"})
			latencies[i] = time.Since(start)
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

// greeter is a backend that answers in 2 ms. If it stalls, it is silent for the last 100 ms of each
// second.
type greeter struct {
	pb.UnimplementedGreeterServer
	start  time.Time
	stalls bool
}

func (g *greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	delay := 2 * time.Millisecond
	if since := time.Since(g.start) % time.Second; g.stalls && since > 900*time.Millisecond {
		delay += time.Second - since
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done(): // another attempt has answered
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
