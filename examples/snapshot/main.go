// Command snapshot saves a scheduler's latencies when it shuts down, and loads them when it starts
// again.
//
//	cd examples && go run ./snapshot
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

const calls = 400 // of each process

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

	folder, err := os.MkdirTemp("", "snapshot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "hedge.pb")

	fmt.Fprintf(w, "Two processes, one after the other, make %d calls each. One attempt in twenty takes 100 ms "+
		"instead of 5 ms.\n\n", calls)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tp50\tp99\tcalls before the first hedge could be sent")
	for _, name := range []string{"without a snapshot", "with the first one's"} {
		if err := process(table, name, listener.Addr().String(), file); err != nil {
			return err
		}
	}
	table.Flush()
	size, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nThe snapshot has %d bytes.\n", size.Size())
	return nil
}

// process runs a process from start to end.
func process(w io.Writer, name, target, file string) error {
	s, err := load(file)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(target,
		interceptor.DialOptions(s, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := pb.NewGreeterClient(conn)

	latencies := make([]time.Duration, calls)
	for i := range latencies {
		start := time.Now()
		if _, err := client.SayHello(context.Background(), &pb.HelloRequest{Name: "hedge"}); err != nil {
			return err
		}
		latencies[i] = time.Since(start)
	}
	slices.Sort(latencies)
	percentile := func(percent int) time.Duration {
		return latencies[(calls*percent-1)/100].Round(100 * time.Microsecond)
	}
	fmt.Fprintf(w, "%s\t%v\t%v\t%d\n", name, percentile(50), percentile(99), s.Stats().Warmup)
	return save(s, file)
}

// load returns a scheduler with the latencies of the previous one, if there was one.
func load(file string) (*hedge.Scheduler, error) {
	// SayHello only reads, so it may safely run twice.
	options := []hedge.Option{hedge.WithReadOnlyMethods(pb.Greeter_SayHello_FullMethodName)}
	f, err := os.Open(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return hedge.New(options...)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	s, err := hedge.New(append(options, hedge.WithSnapshot(f))...)
	if err != nil {
		log.Print(err) // start without it rather than not at all
		return hedge.New(options...)
	}
	return s, nil
}

// save writes a new file and renames it over the old one, so that there is always a complete
// snapshot.
func save(s *hedge.Scheduler, file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), "hedge")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // if it was not renamed
	if err := errors.Join(s.WriteSnapshot(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// greeter is a server that is sometimes slow.
type greeter struct{ pb.UnimplementedGreeterServer }

func (greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	delay := 5 * time.Millisecond
	if rand.IntN(20) == 0 {
		delay = 100 * time.Millisecond
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done(): // another attempt has answered
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
