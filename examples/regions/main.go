// Command regions sends hedges to another region. Its own region stalls now and then, and then goes
// down: a call that is slow there, or fails there, is answered by the other region.
//
//	cd examples && go run ./regions
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
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

const (
	calls = 500                  // by each client in each phase
	pace  = 3 * time.Millisecond // between the starts of two calls
	near  = 5 * time.Millisecond // latency of the client's region
	far   = 15 * time.Millisecond
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	eu, stopEU, err := startRegion(&region{latency: near, stalls: true, start: time.Now()})
	if err != nil {
		return err
	}
	defer stopEU()
	us, stopUS, err := startRegion(&region{latency: far})
	if err != nil {
		return err
	}
	defer stopUS()

	// While eu is down, each call needs a hedge: a budget of 100% can pay for that. Greetings are the
	// same everywhere; replicas that lag need hedge.WithAcceptable.
	s, err := hedge.New(hedge.WithReadOnlyMethods("/helloworld.Greeter/*"), hedge.WithFailover(),
		hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100))
	if err != nil {
		return err
	}
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	plain, err := grpc.NewClient(eu, creds)
	if err != nil {
		return err
	}
	defer plain.Close()
	toUS, err := grpc.NewClient(us, creds)
	if err != nil {
		return err
	}
	defer toUS.Close() // after the connection that it serves
	hedged, err := grpc.NewClient(eu, interceptor.DialOptions(s, creds, interceptor.HedgeTo(toUS))...)
	if err != nil {
		return err
	}
	defer hedged.Close()

	fmt.Fprintf(w, "%d calls by each client in each phase, one every %v. Region eu answers in %v, and stalls for "+
		"100 ms of each\nsecond; us answers in %v. Then eu goes down.\n\n", calls, pace, near, far)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\t\tp50\tp99\tfailed calls\textra load")
	for _, phase := range []string{"eu stalls", "eu is down"} {
		if phase == "eu is down" {
			stopEU()
		}
		before := s.Stats()
		var without, with result
		var wg sync.WaitGroup
		wg.Go(func() { without = measure(plain) }) // at the same time, so that both meet the same stalls
		wg.Go(func() { with = measure(hedged) })
		wg.Wait()
		fmt.Fprintf(table, "%s\twithout hedging\t%v\t0%%\n", phase, without)
		fmt.Fprintf(table, "\thedges to us\t%v\t%.0f%%\n", with,
			100*float64(s.Stats().Hedges-before.Hedges)/float64(calls))
	}
	return table.Flush()
}

// result has a client's measurements in a phase.
type result struct {
	latencies []time.Duration // of the calls that succeeded, in order
	failed    int
}

func (r result) String() string {
	p50, p99 := "-", "-"
	if n := len(r.latencies); n > 0 {
		p50 = r.latencies[(n-1)/2].Round(100 * time.Microsecond).String()
		p99 = r.latencies[(99*n-1)/100].Round(100 * time.Microsecond).String()
	}
	return fmt.Sprintf("%s\t%s\t%d", p50, p99, r.failed)
}

// measure makes all calls of a phase at a steady pace.
func measure(conn *grpc.ClientConn) (r result) {
	client := pb.NewGreeterClient(conn)
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	var mu sync.Mutex // guards r
	var wg sync.WaitGroup
	for range calls {
		<-ticks.C
		wg.Go(func() {
			start := time.Now()
			_, err := client.SayHello(context.Background(), &pb.HelloRequest{Name: "hedge"})
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.failed++
			} else {
				r.latencies = append(r.latencies, took)
			}
		})
	}
	wg.Wait()
	slices.Sort(r.latencies)
	return r
}

// region is a server. If it stalls, it is silent for the last 100 ms of each second.
type region struct {
	pb.UnimplementedGreeterServer
	latency time.Duration
	stalls  bool
	start   time.Time
}

func startRegion(r *region) (target string, stop func(), err error) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return "", nil, err
	}
	server := grpc.NewServer()
	pb.RegisterGreeterServer(server, r)
	go server.Serve(listener)
	return listener.Addr().String(), server.Stop, nil
}

func (r *region) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	delay := r.latency
	if since := time.Since(r.start) % time.Second; r.stalls && since > 900*time.Millisecond {
		delay += time.Second - since
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done(): // another attempt has answered
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
