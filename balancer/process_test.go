//go:build unix

package balancer_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// serverVariable is set for a process of this test binary that is a server.
const serverVariable = "HEDGE_TEST_SERVER"

func init() { serveInstead = serve }

// serve runs a server in this process, which prints its address, until the end of the input.
func serve() bool {
	if os.Getenv(serverVariable) == "" {
		return false
	}
	cluster, err := testserver.Start(testserver.Config{CountsOnly: true})
	if err != nil {
		panic(err)
	}
	fmt.Println(cluster.Address(0))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

// process is the test's handle of a server.
type process struct {
	*exec.Cmd
	address string
}

// startProcesses starts some servers, which end with the test.
func startProcesses(t *testing.T, n int) []*process {
	t.Helper()
	var all []*process
	for range n {
		p := &process{Cmd: exec.Command(os.Args[0])}
		p.Env = append(os.Environ(), serverVariable+"=1")
		p.Stderr = os.Stderr
		in, _ := p.StdinPipe()
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.signal(t, syscall.SIGCONT)
			_ = in.Close()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
		if _, err := fmt.Fscan(out, &p.address); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	if err := p.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

// dialServers returns a round robin over servers. A nil scheduler hedges nothing.
func dialServers(t *testing.T, servers []*process, s *hedge.Scheduler,
	option grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	names := manual.NewBuilderWithScheme("processes")
	var state resolver.State
	for _, p := range servers {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: p.address}}})
	}
	names.InitialState(state)
	conn, err := grpc.NewClient("processes:///", append(hedgetest.Interceptors(s),
		grpc.WithResolvers(names), grpc.WithTransportCredentials(insecure.NewCredentials()), option)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	testserver.ConnectT(t, conn)
	return testpb.NewTestServiceClient(conn)
}

// stopAndGo stops servers for a second in every five, by signals, until done is closed.
func stopAndGo(t *testing.T, servers []*process, done <-chan struct{}) {
	for at := time.Second; ; at = 4 * time.Second {
		select {
		case <-done:
			return
		case <-time.After(at):
		}
		for _, p := range servers {
			p.signal(t, syscall.SIGSTOP)
		}
		<-time.After(time.Second)
		for _, p := range servers {
			p.signal(t, syscall.SIGCONT)
		}
	}
}

// TestStalledProcess stops server processes by signals for a second in every five. Plain calls, and
// hedged calls with default options, go to servers of the same kind at the same time. Plain calls
// to servers that are never stopped measure the noise of the machine.
func TestStalledProcess(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for _, tc := range []struct {
		stopped    int
		share, max float64 // of plain's p99; extra load
	}{{1, 0.03, 0.02}, {3, 1.05, 0.15}, {2, 1.05, 0.15}}[:longtest.Table(1, 2, 3)] {
		for _, k := range kinds {
			t.Run(fmt.Sprintf("%d of 3 stopped,%s", tc.stopped, k.name), func(t *testing.T) {
				const rate, d = 500, 16 * time.Second
				servers := startProcesses(t, 9)
				s := hedgetest.All(t)
				theirs, ours := dialServers(t, servers[:3], nil, plain), dialServers(t, servers[3:6], s, over(roundRobin))
				calm := dialServers(t, servers[6:], nil, plain)
				done := make(chan struct{})
				var group sync.WaitGroup
				group.Go(func() { stopAndGo(t, append(servers[:tc.stopped:tc.stopped], servers[3:3+tc.stopped]...), done) })
				var all [3]simulation.Calls
				var calling sync.WaitGroup
				for i, client := range []testpb.TestServiceClient{theirs, ours, calm} {
					calling.Go(func() {
						all[i] = traffic{kind: k, rate: []float64{rate, rate, rate / 5}[i], lasts: d,
							rng: generator(1, uint64(2+i))}.run(t, client)
					})
				}
				calling.Wait()
				unhedged, hedged, floor := all[0], all[1], all[2]
				close(done)
				group.Wait()

				q := simulation.Calls.Tail
				share := float64(q(hedged, 0.99)) / float64(q(unhedged, 0.99))
				row := s.Methods()[0]
				load := row.HedgeRate()
				t.Logf("p50 %v and %v, p99 %v and %v (%.3f), p99.9 %v and %v; nothing stopped: %v, %v, %v; "+
					"%.1f%% extra load, %d of %d primaries moved", q(unhedged, 0.50), q(hedged, 0.50),
					q(unhedged, 0.99), q(hedged, 0.99), share, q(unhedged, 0.999), q(hedged, 0.999),
					q(floor, 0.50), q(floor, 0.99), q(floor, 0.999), 100*load, row.Moved, row.Calls)
				if noise := float64(q(floor, 0.99)) / float64(q(unhedged, 0.99)); noise > 0.02 {
					t.Skipf("the machine is too busy: where nothing is stopped p99 is %.3f of plain's", noise)
				}
				most, max := tc.share, tc.max
				if !longtest.Full() { // other tests run beside this one, and make calls late
					most, max = 1.2*tc.share, 0.15
				}
				if share > most || load > max {
					t.Errorf("p99 is %.3f of plain's, want at most %.2f; %.1f%% extra load, want at most %.1f",
						share, most, 100*load, 100*max)
				}
			})
		}
	}
}
