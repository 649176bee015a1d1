package stream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestGuard_HearsOfEachFailureOnce: each RESOURCE_EXHAUSTED of an attempt halves the share once.
func TestGuard_HearsOfEachFailureOnce(t *testing.T) {
	used := testserver.Plan{Delay: 2 * ms, Code: codes.ResourceExhausted}
	late := testserver.Plan{Delay: 20 * ms, Code: codes.ResourceExhausted}
	slow := testserver.Plan{Delay: 50 * ms, Messages: 1}
	never := testserver.Plan{Delay: 2 * ms, Code: codes.ResourceExhausted, Trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1")}
	config := hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}],
		"hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)
	for _, tc := range []struct {
		name    string
		plans   []testserver.Plan
		option  hedge.Option
		call    grpc.CallOption
		headers bool // are asked for first
		failed  int
	}{
		{name: "none", plans: []testserver.Plan{slow, slow}},
		{name: "an unhedged call", plans: []testserver.Plan{used}, call: hedge.Off(), failed: 1},
		{name: "an unhedged call with a throttle", plans: []testserver.Plan{used}, call: hedge.Off(), option: hedge.WithThrottle(10, 1), failed: 1},
		{name: "a primary before its hedge", plans: []testserver.Plan{used}, failed: 1},
		{name: "the same, with a throttle", plans: []testserver.Plan{used}, option: hedge.WithThrottle(10, 1), failed: 1},
		{name: "the same, at the headers", plans: []testserver.Plan{used}, headers: true, failed: 1},
		{name: "a hedge", plans: []testserver.Plan{slow, used}, failed: 1},
		{name: "a hedge, at the headers", plans: []testserver.Plan{slow, used}, headers: true, failed: 1},
		{name: "a hedge that was turned away", plans: []testserver.Plan{slow, never}},
		{name: "both", plans: []testserver.Plan{late, late}, failed: 2},
		{name: "both, with a hedgingPolicy", plans: []testserver.Plan{used, late}, option: config, failed: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
				s := fixed(t, 10*ms, hedge.WithMaxHedges(1), tc.option)
				var options []grpc.CallOption
				if tc.call != nil {
					options = append(options, tc.call)
				}
				st, err := dial(t, cluster, s).ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 1}, options...)
				if err != nil {
					t.Fatal(err)
				}
				if tc.headers {
					_, _ = st.Header()
				}
				_, _, _ = receive(st, &testpb.Request{Id: 1})
				began := time.Now()
				time.Sleep(5 * time.Second) // the pause
				grown := 0.0
				if tc.failed > 0 {
					grown = time.Since(began).Seconds()/600 + 0.001
				}
				want := 1.0
				for range tc.failed {
					want /= 2
				}
				if got := s.Targets()[0].Guard; got.Share < want || got.Share > want+grown {
					t.Errorf("the share is %v, want %v; %s", got.Share, want, got.Reason)
				}
			})
		})
	}
}
