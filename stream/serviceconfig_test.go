package stream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// configured returns a scheduler for which ServerStream has this hedgingPolicy, and which does nothing else.
func configured(t testing.TB, policy string) *hedge.Scheduler {
	t.Helper()
	config := `{"methodConfig": [{"name": [{"service": "hedgetest.TestService", "method": "ServerStream"}], "hedgingPolicy": ` + policy + `}]}`
	return hedgetest.New(t, hedge.WithServiceConfig(config), hedge.WithBudgetPercent(400))
}

const (
	// policies of three attempts, 10 ms and 10 s apart, that take UNAVAILABLE for non-fatal
	soon = `{"maxAttempts": 3, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
	late = `{"maxAttempts": 3, "hedgingDelay": "10s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
)

func slow() testserver.Plan                        { return testserver.Plan{Delay: time.Hour} }
func delivers(after time.Duration) testserver.Plan { return testserver.Plan{Delay: after} }
func breaks(after time.Duration, code codes.Code, pushback ...string) testserver.Plan {
	return testserver.Plan{Delay: after, Code: code, Trailer: metadata.MD{"grpc-retry-pushback-ms": pushback}}
}

// TestGRPCDefinition_OfStreams has the sentences of gRPC's definition that are about streams, over real gRPC.
func TestGRPCDefinition_OfStreams(t *testing.T) {
	headersFirst := testserver.Plan{HeaderAtOnce: true, Delay: 200 * ms}
	for _, tc := range []struct {
		name   string
		plans  []testserver.Plan
		sent   []time.Duration
		at     time.Duration // of the end
		winner int           // whose messages they are; -1 for none
	}{
		{"response headers commit the call", []testserver.Plan{headersFirst}, []time.Duration{0}, 200 * ms, 0},
		{"also those of a hedge", []testserver.Plan{slow(), headersFirst}, []time.Duration{0, 10 * ms}, 210 * ms, 1},
		{"an empty stream is an OK", []testserver.Plan{slow(), {Delay: 3 * ms, Empty: true}}, []time.Duration{0, 10 * ms}, 13 * ms, -1},
		{"a non-fatal status sends the next hedge", []testserver.Plan{breaks(3*ms, codes.Unavailable), breaks(2*ms, codes.Unavailable, "1"), delivers(ms)}, []time.Duration{0, 3 * ms, 6 * ms}, 7 * ms, 2},
	} {
		for _, headerFirst := range []bool{false, true} { // the caller asks for the headers before the first message
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
					client := dial(t, cluster, configured(t, soon))
					began, finished := time.Now(), 0
					req := &testpb.Request{Id: 1, Messages: 1}
					st, err := client.ServerStream(t.Context(), req, grpc.OnFinish(func(error) { finished++ }))
					if err != nil {
						t.Fatal(err)
					}
					if headerFirst {
						if _, err := st.Header(); err != nil {
							t.Error(err)
						}
					}
					_, winner, err := receive(st, req)
					if at := time.Since(began); err != nil || at != tc.at || winner != tc.winner {
						t.Errorf("%v after %v from attempt %d, want it after %v from %d", err, at, winner, tc.at, tc.winner)
					}
					if _, again := st.Recv(); again != io.EOF {
						t.Errorf("received again: %v", again)
					}
					synctest.Wait()
					var sent []time.Duration
					for _, r := range cluster.Records() {
						sent = append(sent, r.Arrival.Sub(began))
					}
					if !slices.Equal(sent, tc.sent) || finished != 1 {
						t.Errorf("sent after %v, want %v; OnFinish ran %d times", sent, tc.sent, finished)
					}
				})
			})
		}
	}
}

// TestThrottle_IsSharedWithUnhedgedStreams counts the outcome of a stream once, by what it first has for its caller.
func TestThrottle_IsSharedWithUnhedgedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		s := hedgetest.All(t, hedgetest.Throttle(10, 0.5), hedge.WithWarmup(1000, 0))
		client := dial(t, cluster, s)
		for _, tc := range []struct {
			name   string
			plan   testserver.Plan
			header bool
			want   float64
		}{
			{"fails", breaks(ms, codes.Unavailable), false, 9},
			{"fails, headers asked for", breaks(ms, codes.Unavailable), true, 8},
			{"says that it looked at the request", breaks(ms, codes.NotFound), false, 8},
			{"and not to try again", breaks(ms, codes.NotFound, "-1"), false, 7},
			{"answers", delivers(ms), false, 7.5},
			{"answers, headers asked for", delivers(ms), true, 8},
			{"is empty", testserver.Plan{Empty: true}, false, 8.5},
			{"fails after its first message", testserver.Plan{After: 1, Code: codes.Unavailable}, false, 9},
		} {
			cluster.SetScript(func(testserver.Attempt) testserver.Plan { return tc.plan })
			st, err := client.ServerStream(t.Context(), &testpb.Request{Messages: 2})
			if err != nil {
				t.Fatal(err)
			}
			if tc.header {
				_, _ = st.Header()
			}
			for err == nil {
				_, err = st.Recv()
			}
			if got := s.Targets()[0].ThrottleTokens; got != tc.want {
				t.Errorf("%s: %v tokens, want %v", tc.name, got, tc.want)
			}
		}
	})
}

// TestGRPCDefinition_AStreamThatCannotBeOpened is one more attempt that fails.
func TestGRPCDefinition_AStreamThatCannotBeOpened(t *testing.T) {
	for _, tc := range []struct {
		code   codes.Code
		broken int // attempts that cannot be opened
		want   codes.Code
	}{
		{codes.Unavailable, 1, codes.OK},
		{codes.Unavailable, 2, codes.OK},
		{codes.Unavailable, 3, codes.Unavailable},
		{codes.Internal, 1, codes.Internal},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true})
			opened := 0
			client := dial(t, cluster, configured(t, late), grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if opened++; opened <= tc.broken {
					return nil, status.Error(tc.code, "cannot be opened")
				}
				return streamer(ctx, desc, cc, method, opts...)
			}))
			req := &testpb.Request{Id: 7, Messages: 2}
			st, err := client.ServerStream(t.Context(), req)
			if err == nil {
				if err = errors.Join(st.CloseSend()); err == nil {
					_, _, err = receive(st, req)
				}
				_ = st.Trailer()
			}
			if status.Code(err) != tc.want || opened != min(tc.broken+1, 3) && tc.want == codes.OK {
				t.Errorf("%d broken: %v after %d attempts, want %v", tc.broken, err, opened, tc.want)
			}
		})
	}
}
