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

	// Hedging is off until the file is in force. The logger belongs to the scheduler, as traces and
	// metrics do: updates keep it.
	s, err := hedge.New(hedge.WithOff(true), hedge.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = hedgeconfig.Update(s, data)
	}
	if err != nil {
		slog.Error("hedging: off until the file is mended", "error", err)
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
		{"The file has a mistake, so the options stay", mistake},
	} {
		if step.content != first {
			if err := replace(file, step.content); err != nil {
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

// replace writes a file beside the old one and renames it: a file that is read while it is written has
// a mistake.
func replace(file, content string) error {
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// watch updates the scheduler when the content of the file is no longer last. After a mistake in the
// file the options in force stay, but "off": true takes effect. A file that cannot be read changes
// nothing. Both are logged. watch sends the error, nil once the options are in force, to updated, which
// has room for one, and never waits for a reader. A program that has a library for watching files uses
// that instead of a ticker.
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
		if err != nil || bytes.Equal(data, last) {
			continue
		}
		last = data
		if err = hedgeconfig.Update(s, data); err != nil {
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
