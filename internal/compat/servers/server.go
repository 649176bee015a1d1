package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// Server is a server, or a proxy in front of the test server, at its defaults.
type Server struct {
	Name string
	// Prepare finds the server on this machine or installs it, and returns the program. Its error
	// explains why the server is skipped.
	Prepare func(ctx context.Context, m *Machine) (*Program, error)
}

// Program is a process that serves the test service's unary method by the distribution "straggler"
// in plain text.
type Program struct {
	Version string
	Folder  string // where it is installed and runs
	Proxy   bool   // it passes calls on
	HTTP    bool   // it answers HTTP requests, and no calls of gRPC
	// Command returns the process that listens at a port of the loopback address. A proxy passes
	// calls on to backends.
	Command func(port string, backends []string) *exec.Cmd
}

// Machine is where servers are installed.
type Machine struct {
	Folder  string // temporary; every server has a folder of its own in it
	Install bool   // whether missing programs may be installed
}

// folder returns a server's own folder.
func (m *Machine) folder(name string) (string, error) {
	folder := filepath.Join(m.Folder, name)
	return folder, os.MkdirAll(folder, 0o755)
}

// run runs a command to completion. Its error includes the last line of the output.
func (m *Machine) run(ctx context.Context, folder string, name string, args ...string) (output string, err error) {
	if _, err := exec.LookPath(name); err != nil {
		return "", fmt.Errorf("%s is not on this machine", name)
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = folder
	printed, err := command.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
		err = fmt.Errorf("%s: %w: %s", filepath.Base(name), err, lines[len(lines)-1])
	}
	return string(printed), err
}

// errNotInstalled is why a server is left out that is not there and may not be installed.
var errNotInstalled = errors.New("not installed, and -install=false")

// Running is a program that serves.
type Running struct {
	Address string
	process *os.Process
	stop    func()
}

// Start runs a program and waits until it answers.
func (p *Program) Start(ctx context.Context, backends []string) (*Running, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	command := p.Command(port, backends)
	command.Dir = p.Folder
	printed, err := os.Create(filepath.Join(p.Folder, "output-"+port))
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = printed, printed
	if err := command.Start(); err != nil {
		printed.Close()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	running := &Running{Address: "127.0.0.1:" + port, process: command.Process, stop: func() {
		// Servers with workers of their own end these when they are asked to end.
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = command.Process.Kill()
			<-ended
		}
		printed.Close()
	}}
	answers := running.answers
	if p.HTTP {
		answers = running.answersHTTP
	}
	if err := answers(ctx, ended); err != nil {
		running.stop()
		return nil, fmt.Errorf("%w; what it printed is in %s", err, printed.Name())
	}
	return running, nil
}

// patience is how long a server may take to start: Java does, on a machine that has other things to
// do.
const patience = 3 * time.Minute

// answers returns as soon as a call succeeded, or an error if the process ends or patience does.
func (r *Running) answers(ctx context.Context, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+r.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		select {
		case err := <-ended:
			ended <- err // for stop
			cancel()
		case <-ctx.Done():
		}
	}()
	reply, err := testpb.NewTestServiceClient(conn).Unary(ctx, &testpb.Request{Id: 7}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	if reply.GetId() != 7 {
		return fmt.Errorf("it answers %v", reply)
	}
	return nil
}

// freePort returns an unused port of the loopback address.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
}

// startBackend starts the test server, which counts connections and calls that are cancelled.
func startBackend() (*testserver.Cluster, error) {
	distribution, err := testserver.ParseDistribution("straggler")
	if err != nil {
		return nil, err
	}
	return testserver.Start(testserver.Config{Latency: distribution, Seed: 1, CountsOnly: true,
		Limit: &testserver.Limit{}})
}

// stopAndGo stops a process for a second in every five, until done is closed.
func stopAndGo(p *os.Process, done <-chan struct{}) {
	for running, wait := true, time.Second; ; running = !running {
		select {
		case <-done:
			if !running {
				_ = p.Signal(syscall.SIGCONT)
			}
			return
		case <-time.After(wait):
		}
		signal := syscall.SIGSTOP
		if wait = time.Second; !running {
			signal, wait = syscall.SIGCONT, 4*time.Second
		}
		_ = p.Signal(signal) // it may have ended
	}
}
