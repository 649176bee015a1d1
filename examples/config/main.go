// Command config changes how calls are hedged while the client runs. It reads a JSON file, watches
// it, and updates the scheduler when the file changes. For the demonstration it changes the file
// itself.
//
//	cd examples && go run ./config
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hedgeconfig "github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/interceptor"
)

// The file's contents at first, after an operator has switched hedging off for one method, and
// after a mistake.
const (
	first = `{"readOnlyMethods": ["/helloworld.Greeter/*"], "budgetPercent": 10}`
	off   = `{"readOnlyMethods": ["/helloworld.Greeter/*"], "methodOptions": {"/helloworld.Greeter/SayHello": ` +
		`{"off": true}}}`
	mistake = `{"readOnlyMethods": ["/helloworld.Greeter/*"], "budgetPercent": 1000}`
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	directory, err := os.MkdirTemp("", "hedge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "hedge.json")
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		return err
	}

	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterGreeterServer(server, greeter{})
	go server.Serve(listener)
	defer server.Stop()

	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	opts, err := hedgeconfig.Parse(data)
	if err != nil {
		return err
	}
	// The logger belongs to the scheduler, as traces and metrics do: updates keep it.
	s, err := hedge.New(append(opts, hedge.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))...)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(listener.Addr().String(),
		interceptor.DialOptions(s, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer conn.Close()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	updated := make(chan error, 1)
	go watch(ctx, file, data, s, updated)

	client := pb.NewGreeterClient(conn)
	for _, step := range []struct{ text, content string }{
		{"The file allows a budget of 10%", first},
		{"The file switches the method off", off},
		{"The file has a mistake, so nothing changes", mistake},
	} {
		if step.content != first {
			if err := os.WriteFile(file, []byte(step.content), 0o600); err != nil {
				return err
			}
			if err := <-updated; err != nil {
				fmt.Fprintln(w, err)
			}
		}
		before := s.Stats()
		for range 400 {
			if _, err := client.SayHello(ctx, &pb.HelloRequest{Name: "hedge"}); err != nil {
				return err
			}
		}
		fmt.Fprintf(w, "%s: %d hedges in 400 calls.\n", step.text, s.Stats().Hedges-before.Hedges)
	}
	return nil
}

// watch updates the scheduler when the content of the file is no longer last. A mistake in the file
// changes nothing, nor does a file that cannot be read; both are logged. It sends the error, nil
// once the options are in force, to updated, which has room for one, and never waits for a reader. A
// program that has a library for watching files uses that instead of a ticker.
func watch(ctx context.Context, file string, last []byte, s *hedge.Scheduler, updated chan error) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	unreadable := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		data, err := os.ReadFile(file)
		if err != nil && !unreadable {
			slog.Error("hedging: the file cannot be read, so the options stay", "error", err)
		}
		unreadable = err != nil
		if err != nil || len(data) == 0 || bytes.Equal(data, last) { // an empty file is about to be written
			continue
		}
		last = data
		opts, err := hedgeconfig.Parse(data)
		if err == nil {
			err = s.Update(opts...)
		}
		if err != nil {
			slog.Error("hedging: the file has a mistake, so the options stay", "error", err)
		}
		select {
		case <-updated: // the last one has not been read
		default:
		}
		updated <- err
	}
}

// greeter is a server that is sometimes slow.
type greeter struct{ pb.UnimplementedGreeterServer }

func (greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	delay := time.Millisecond
	if rand.IntN(20) == 0 {
		delay = 50 * time.Millisecond
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done(): // another attempt has answered
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
