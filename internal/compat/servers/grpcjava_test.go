package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/runqueue"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

// TestGRPCJava_AsksTheNextServer has grpc-java hedge by its hedgingPolicy, over round_robin. Each
// primary takes 3 s. Of the hedges that are marked every second one is turned away, from the first.
func TestGRPCJava_AsksTheNextServer(t *testing.T) {
	longtest.Only(t) // it needs packages for Java
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	machine := &Machine{Folder: t.TempDir(), Install: true}
	folder, err := machine.compileJava(t.Context(), "Hedge")
	if err != nil {
		t.Fatal(err)
	}
	defer runqueue.Replace(func() time.Duration { return 0 })()
	const calls, delay = 4, 500
	for _, tc := range []struct {
		nonFatal, mark, outcomes string
		attempts                 int // of all calls
		shed                     int64
	}{
		{nonFatal: "RESOURCE_EXHAUSTED", mark: "mark", outcomes: "OK OK OK OK", attempts: 3 * calls, shed: calls},
		{nonFatal: "UNAVAILABLE", mark: "mark", outcomes: "RESOURCE_EXHAUSTED OK RESOURCE_EXHAUSTED OK",
			attempts: 2 * calls, shed: calls / 2},
		{nonFatal: "RESOURCE_EXHAUSTED", mark: "plain", outcomes: "OK OK OK OK", attempts: 2 * calls},
	} {
		t.Run(tc.nonFatal+", "+tc.mark, func(t *testing.T) {
			var hedges atomic.Int64
			bound, err := shed.New(shed.WithBusy(func() bool { return hedges.Add(1)%2 == 1 }))
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var seen [][2]int // the server and the number of each attempt
			var ports []string
			for n := range 3 {
				note := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					mu.Lock()
					seen = append(seen, [2]int{n, hedge.PreviousAttempts(ctx)})
					mu.Unlock()
					return handler(ctx, req)
				}
				server := grpc.NewServer(grpc.ChainUnaryInterceptor(note, bound.Unary))
				testpb.RegisterTestServiceServer(server, slowPrimary{})
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				go func() { _ = server.Serve(listener) }()
				defer server.Stop()
				ports = append(ports, fmt.Sprint(listener.Addr().(*net.TCPAddr).Port))
			}
			out, err := machine.run(t.Context(), folder, "java", "-cp", javaClassPath, "Hedge", strings.Join(ports, ","),
				fmt.Sprintf("%.3fs", delay/1e3), tc.nonFatal, fmt.Sprint(calls), tc.mark)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			var outcomes []string
			quickest := 2 * delay
			for _, line := range strings.Split(out, "\n") {
				var outcome string
				var ms int
				if n, _ := fmt.Sscan(line, &outcome, &ms); n == 2 {
					outcomes = append(outcomes, outcome)
					quickest = min(quickest, ms)
				}
			}
			t.Logf("%v, in %d ms or more; server and attempt: %v; turned away: %d", outcomes, quickest, seen, bound.Shed())
			if got := strings.Join(outcomes, " "); got != tc.outcomes || len(seen) != tc.attempts || bound.Shed() != tc.shed ||
				quickest < delay || quickest > delay*3/2 {
				t.Errorf("want %s, %d attempts, %d turned away", tc.outcomes, tc.attempts, tc.shed)
			}
			each := tc.attempts / calls
			for n := each; n+each <= len(seen); n += each { // at the first call not all servers are ready
				met := map[int]bool{}
				for _, attempt := range seen[n : n+each] {
					met[attempt[0]] = true
				}
				if len(met) != each {
					t.Errorf("a call met a server twice: %v", seen[n:n+each])
				}
			}
		})
	}
}

// slowPrimary answers hedges at once, and primaries after 3 s.
type slowPrimary struct {
	testpb.UnimplementedTestServiceServer
}

func (slowPrimary) Unary(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
	if hedge.PreviousAttempts(ctx) == 0 {
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
	}
	return &testpb.Reply{}, nil
}
