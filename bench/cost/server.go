package cost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/grpchedge/hedge/internal/testserver"
)

// Serve runs the server. It writes its address to w, and returns when r ends.
func Serve(r io.Reader, w io.Writer) error {
	cluster, err := testserver.Start(testserver.Config{CountsOnly: true})
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Fprintln(w, cluster.Address(0))
	_, err = io.Copy(io.Discard, r)
	return err
}

// startServer runs the command, which must run Serve, and returns a gRPC target of its server. stop
// ends it.
func startServer(ctx context.Context, command []string) (target string, stop func(), err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, errors.New("the server process gave no address")
	}
	return "passthrough:///" + strings.TrimSpace(address), stop, nil
}
