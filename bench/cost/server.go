package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// Serve runs the server. It writes its address to w, and returns when r ends.
func Serve(r io.Reader, w io.Writer) error {
	cluster, err := testserver.Start(testserver.Config{CountsOnly: true})
	if err != nil {
		return err
	}
	defer cluster.Close()
	conn, err := cluster.Client()
	if err != nil {
		return err
	}
	url, stop, err := serveHTTP(testpb.NewTestServiceClient(conn))
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintln(w, cluster.Address(0), url)
	_, err = io.Copy(io.Discard, r)
	return err
}

// target is a server's target of gRPC and its URL.
type target struct{ grpc, http string }

// startServer runs the command, which must run Serve, and returns the addresses of its server. stop
// ends it.
func startServer(ctx context.Context, command []string) (to target, stop func(), err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return to, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return to, nil, err
	}
	if err := cmd.Start(); err != nil {
		return to, nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	if _, err := fmt.Fscanln(out, &to.grpc, &to.http); err != nil {
		stop()
		return to, nil, errors.New("the server process gave no address")
	}
	to.grpc = "passthrough:///" + to.grpc
	return to, stop, nil
}
