package main

import (
	"context"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRegions has a real Envoy in front of each of two regions. The backends of one stall, then its Envoy
// is killed. Calls over plain gRPC wait, then fail. Hedged calls are answered by the other region.
func TestRegions(t *testing.T) {
	path, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("envoy is not on the path: .ci/run installs it")
	}
	var stalls atomic.Bool
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	region := func(served *atomic.Int64, stall func()) (grpc.DialOption, string, func()) {
		backends := startRecipeBackends(t, func(bool) { served.Add(1); stall() })
		address, kill := startRecipe(t, recipe(t, "yaml", backends), path, envoy...)
		return grpc.WithTransportCredentials(insecure.NewCredentials()), "passthrough:///" + address, kill
	}
	dial := func(address string, options ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient(address, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var servedByEU, servedByUS atomic.Int64
	creds, eu, killEU := region(&servedByEU, func() {
		if stalls.Load() {
			<-released
		}
	})
	_, us, _ := region(&servedByUS, func() {})
	s := hedgetest.Fixed(t, 20*time.Millisecond, hedge.WithFailover())
	hedged := testpb.NewTestServiceClient(dial(eu,
		interceptor.DialOptions(s, creds, interceptor.HedgeTo(dial(us, creds)))...))
	plain := testpb.NewTestServiceClient(dial(eu, creds))

	const calls = 20
	for _, phase := range []struct {
		name  string
		begin func()
		plain codes.Code
	}{
		{name: "both regions answer", begin: func() {}, plain: codes.OK},
		{name: "eu stalls", begin: func() { stalls.Store(true) }, plain: codes.Canceled},
		{name: "eu is down", begin: killEU, plain: codes.Unavailable},
	} {
		phase.begin()
		ctx, cancel := context.WithCancel(t.Context())
		control := make(chan error, 1)
		go func() {
			_, err := plain.Unary(ctx, &testpb.Request{})
			control <- err
		}()
		if phase.plain != codes.Canceled {
			err = <-control
		}
		before, answered := servedByUS.Load(), 0
		for range calls {
			if _, err := hedged.Unary(t.Context(), &testpb.Request{}); err != nil {
				t.Errorf("%s: a hedged call: %v, want an answer of us", phase.name, err)
				continue
			}
			answered++
		}
		cancel()
		if phase.plain == codes.Canceled {
			err = <-control
		}
		if status.Code(err) != phase.plain {
			t.Errorf("%s: a plain call: %v, want %v", phase.name, err, phase.plain)
		}
		got := servedByUS.Load() - before
		t.Logf("%s: plain %v; hedged %d of %d answered; us served %d attempts", phase.name, status.Code(err),
			answered, calls, got)
		if phase.plain != codes.OK && got < calls {
			t.Errorf("%s: us served %d attempts, want one for each of %d calls", phase.name, got, calls)
		}
	}
	if got := s.Stats(); got.Failovers < calls/2 {
		t.Errorf("%d failovers, want most of the %d calls after eu is down: %+v", got.Failovers, calls, got)
	}
}
