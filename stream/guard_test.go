package stream_test

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestGuard_HearsOfEachFailureOnce: RESOURCE_EXHAUSTED of a hedge alone halves the share, and after that of any call, once.
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
		headers bool    // are asked for first
		alone   float64 // the share after that
		after   float64 // the share if a hedge has failed alone before; 0: 0.5
	}{
		{name: "none", plans: []testserver.Plan{slow, slow}},
		{name: "an unhedged call", plans: []testserver.Plan{used}, call: hedge.Off(), after: 0.25},
		{name: "an unhedged call with a throttle", plans: []testserver.Plan{used}, call: hedge.Off(), option: hedgetest.Throttle(10, 1), after: 0.25},
		{name: "a primary before its hedge", plans: []testserver.Plan{used}, after: 0.25},
		{name: "the same, with a throttle", plans: []testserver.Plan{used}, option: hedgetest.Throttle(10, 1), after: 0.25},
		{name: "the same, at the headers", plans: []testserver.Plan{used}, headers: true, after: 0.25},
		{name: "a hedge", plans: []testserver.Plan{slow, used}, alone: 0.5},
		{name: "a hedge, at the headers", plans: []testserver.Plan{slow, used}, headers: true, alone: 0.5},
		{name: "a hedge that was turned away", plans: []testserver.Plan{slow, never}},
		{name: "both", plans: []testserver.Plan{late, late}, after: 0.25},
		{name: "both, with a hedgingPolicy", plans: []testserver.Plan{used, late}, option: config, after: 0.25},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, before := range []bool{false, true} {
					cluster := testserver.StartT(t, testserver.Config{InMemory: true})
					s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), tc.option)
					client := dial(t, cluster, s)
					call := func(plans []testserver.Plan, headers bool, options ...grpc.CallOption) {
						cluster.SetScript(testserver.ByNumber(plans...))
						st, err := client.ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 1}, options...)
						if err != nil {
							t.Fatal(err)
						}
						if headers {
							_, _ = st.Header()
						}
						_, _, _ = receive(st, &testpb.Request{Id: 1})
					}
					want := cmp.Or(tc.alone, 1)
					if before {
						want = cmp.Or(tc.after, 0.5)
						call([]testserver.Plan{{Delay: 15 * ms, Messages: 1}, used}, false)
					}
					var options []grpc.CallOption
					if tc.call != nil {
						options = append(options, tc.call)
					}
					call(tc.plans, tc.headers, options...)
					time.Sleep(5 * time.Second) // the pause
					if got := s.Targets()[0].Guard; got.Share < want || got.Share > want+0.01 {
						t.Errorf("the share is %v, want %v; %s", got.Share, want, got.Reason)
					}
				}
			})
		})
	}
}
