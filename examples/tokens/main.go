// Command tokens reads the same token streams without and with hedging. The server's first token is
// sometimes late. Hedging waits for the first message, because the response headers come at once.
//
//	cd examples && go run ./tokens
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
	pb "google.golang.org/grpc/examples/features/proto/echo"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

const (
	streams     = 1_500
	tokens      = 5 // of each stream
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
	pb.RegisterEchoServer(server, model{})
	go server.Serve(listener)
	defer server.Stop()
	target := listener.Addr().String()

	// The method only computes an answer, so it may safely run twice.
	s, err := hedge.New(hedge.WithReadOnlyMethods(pb.Echo_ServerStreamingEcho_FullMethodName))
	if err != nil {
		return err
	}
	plain, err := measure(target)
	if err != nil {
		return err
	}
	hedged, err := measure(target, interceptor.DialOptions(s)...)
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "%d streams of %d tokens, %d at a time. The first token takes 10 ms, and 150 ms in one attempt "+
		"of fifty.\n\n", streams, tokens, concurrency)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "time to first token\tp50\tp99")
	fmt.Fprintf(table, "without hedging\t%v\t%v\n", percentile(plain, 50), percentile(plain, 99))
	fmt.Fprintf(table, "with hedging\t%v\t%v\n", percentile(hedged, 50), percentile(hedged, 99))
	table.Flush()
	stats := s.Stats()
	fmt.Fprintf(w, "\nExtra load: %.1f%%. %d hedges were sent, %d answered first.\n", 100*stats.HedgeRate(),
		stats.Hedges, stats.HedgeWins)
	return nil
}

// measure reads all streams over a connection of its own and returns how long each took to its
// first token.
func measure(target string, options ...grpc.DialOption) ([]time.Duration, error) {
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := pb.NewEchoClient(conn)

	latencies := make([]time.Duration, streams)
	errs := make([]error, concurrency)
	var wg sync.WaitGroup
	for reader := range concurrency {
		wg.Go(func() {
			for i := reader; i < streams && errs[reader] == nil; i += concurrency {
				latencies[i], errs[reader] = read(client)
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

// read reads one stream to its end and returns the time to its first token.
func read(client pb.EchoClient) (first time.Duration, err error) {
	start := time.Now()
	stream, err := client.ServerStreamingEcho(context.Background(), &pb.EchoRequest{Message: "Why?"})
	if err != nil {
		return 0, err
	}
	for received := 0; ; received++ {
		_, err := stream.Recv()
		switch {
		case err == io.EOF && received == tokens:
			return first, nil
		case err == io.EOF:
			return 0, fmt.Errorf("the stream ended after %d of %d tokens", received, tokens)
		case err != nil:
			return 0, err
		case received == 0:
			first = time.Since(start)
		}
	}
}

// percentile returns the given percentile, to a tenth of a millisecond.
func percentile(latencies []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[(len(sorted)*percent-1)/100].Round(100 * time.Microsecond)
}

// model is a server of token streams. It sends headers at once, and the first token sometimes late.
type model struct{ pb.UnimplementedEchoServer }

func (model) ServerStreamingEcho(in *pb.EchoRequest, stream grpc.ServerStreamingServer[pb.EchoResponse]) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	delay := 10 * time.Millisecond
	if rand.IntN(50) == 0 {
		delay = 150 * time.Millisecond
	}
	for n := range tokens {
		select {
		case <-time.After(delay):
		case <-stream.Context().Done(): // another attempt has sent its first token
			return status.FromContextError(stream.Context().Err()).Err()
		}
		if err := stream.Send(&pb.EchoResponse{Message: fmt.Sprintf("token %d", n)}); err != nil {
			return err
		}
		delay = 2 * time.Millisecond
	}
	return nil
}
