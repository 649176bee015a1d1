package interceptor_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule02_AConnectionThatBreaksAfterHeaders: the status that gRPC makes when the connection of a
// hedge breaks, or is closed, is not a server's, even if the server has sent headers. It does not end
// the race, whichever codes are final.
func TestRule02_AConnectionThatBreaksAfterHeaders(t *testing.T) {
	unavailable := testserver.Plan{HeaderAtOnce: true, Delay: 10 * ms, Code: codes.Unavailable}
	withTrailer, withoutHeaders := unavailable, unavailable
	withTrailer.Trailer, withoutHeaders.HeaderAtOnce = metadata.Pairs("from", "server"), false
	for _, tc := range []struct {
		name   string
		hedge  testserver.Plan
		closes bool // the caller closes the connection of hedges
		code   codes.Code
	}{
		{name: "breaks", hedge: testserver.Plan{HeaderAtOnce: true, Delay: 10 * ms, Ending: testserver.CloseConn}},
		{name: "is closed", hedge: testserver.Plan{HeaderAtOnce: true, Ending: testserver.Hang}, closes: true},
		{name: "a server's status, which cannot be told from that", hedge: unavailable},
		{name: "a server's status with a trailer", hedge: withTrailer, code: codes.Unavailable},
		{name: "a server's status without headers", hedge: withoutHeaders, code: codes.Unavailable},
	} {
		for config, opt := range map[string]hedge.Option{
			"hedgingPolicy": hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2,
				"hedgingDelay": "0.01s"}}]}`),
			"WithNonFatalCodes": hedge.WithNonFatalCodes(codes.Aborted),
		} {
			for _, d := range doors[:2] {
				hedgetest.Run(t, tc.name+", "+config+", "+string(d), func(t *testing.T) {
					s := hedgetest.New(t, hedge.WithReadOnlyMethods("/*/*"), hedge.WithBudgetPercent(400),
						hedge.WithMaxHedges(1), hedge.WithWarmup(1<<30, 10*ms), opt)
					client, _, far := elsewhere(t, s, testserver.Plan{Delay: 100 * ms}, tc.hedge)
					if tc.closes {
						time.AfterFunc(20*ms, func() { _ = far.Close() })
					}
					_, err := callOver(t.Context(), d, client, &testpb.Request{Messages: 1})
					if status.Code(err) != tc.code {
						t.Errorf("%v, want %v", err, tc.code)
					}
				})
			}
		}
	}
}

// elsewhere starts two clusters and returns a client of the first one whose hedges go to the second,
// over the connection far. Each attempt there has the next of the plans.
func elsewhere(t *testing.T, s *hedge.Scheduler, here testserver.Plan, there ...testserver.Plan) (
	client testpb.TestServiceClient, second *testserver.Cluster, far *grpc.ClientConn,
) {
	first := testserver.StartT(t, testserver.Config{Name: "here", InMemory: true, Script: testserver.ByNumber(here)})
	second = testserver.StartT(t, testserver.Config{Name: "there", InMemory: true,
		Script: func(a testserver.Attempt) testserver.Plan { return there[a.Number-1] }})
	far = second.ClientT(t)
	near := first.ClientT(t, interceptor.DialOptions(s, interceptor.HedgeTo(far))...)
	testserver.ConnectT(t, far)
	testserver.ConnectT(t, near)
	return testpb.NewTestServiceClient(near), second, far
}

// TestRule02_APolicyWaitsForAPushback: with a hedgingPolicy whose hedges go elsewhere, a pushback of the
// other destination delays the next hedge there, as a pushback of the only one does. It does not end
// the call, unless it is for good.
func TestRule02_APolicyWaitsForAPushback(t *testing.T) {
	pushback := func(ms string) testserver.Plan {
		return testserver.Plan{Code: codes.Unavailable, Trailer: metadata.Pairs("grpc-retry-pushback-ms", ms)}
	}
	for _, tc := range []struct {
		wait string
		code codes.Code
		sent []time.Duration // to the other destination
	}{
		{wait: "100", sent: times(10, 110)},
		{wait: "-1", code: codes.Unavailable, sent: times(10)},
	} {
		for _, d := range doors[:2] {
			hedgetest.Run(t, "after "+tc.wait+", "+string(d), func(t *testing.T) {
				s := hedgetest.New(t, hedge.WithBudgetPercent(400), hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}],
					"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`))
				client, there, _ := elsewhere(t, s, testserver.Plan{Delay: 15 * ms, Code: codes.Unavailable},
					pushback(tc.wait), testserver.Plan{})
				began := time.Now()
				_, err := callOver(t.Context(), d, client, &testpb.Request{Messages: 1})
				synctest.Wait()
				var sent []time.Duration
				for _, r := range there.Records() {
					sent = append(sent, r.Arrival.Sub(began))
				}
				if status.Code(err) != tc.code || !slices.Equal(sent, tc.sent) {
					t.Errorf("%v, hedges after %v, want %v, %v", err, sent, tc.code, tc.sent)
				}
			})
		}
	}
}
