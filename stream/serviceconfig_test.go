package stream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
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
func configured(t testing.TB, policy string, more ...string) *hedge.Scheduler {
	t.Helper()
	config := `{"methodConfig": [{"name": [{"service": "hedgetest.TestService", "method": "ServerStream"}], "hedgingPolicy": ` + policy + `}]` + strings.Join(more, "") + `}`
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

// TestGRPCDefinition has the sentences of gRPC's definition that say something else, or something more, of a stream.
func TestGRPCDefinition(t *testing.T) {
	const unavailable = codes.Unavailable
	headersFirst := func(after time.Duration) testserver.Plan {
		return testserver.Plan{HeaderAtOnce: true, Delay: after}
	}
	empty := testserver.Plan{Delay: 3 * ms, Empty: true}
	for _, tc := range []struct {
		name   string
		policy string
		plans  []testserver.Plan
		sent   []time.Duration
		at     time.Duration // of the end
		code   codes.Code
		winner int // whose messages they are; -1 for none
	}{
		{"response headers commit the call", soon, []testserver.Plan{headersFirst(200 * ms)}, []time.Duration{0}, 200 * ms, codes.OK, 0},
		{"also those of a hedge", soon, []testserver.Plan{slow(), headersFirst(200 * ms)}, []time.Duration{0, 10 * ms}, 210 * ms, codes.OK, 1},
		{"each hedge hedgingDelay after the one before", soon, []testserver.Plan{delivers(90 * ms), slow(), slow()}, []time.Duration{0, 10 * ms, 20 * ms}, 90 * ms, codes.OK, 0},
		{"without one all at once", `{"maxAttempts": 3}`, []testserver.Plan{slow(), delivers(4 * ms), slow()}, []time.Duration{0, 0, 0}, 4 * ms, codes.OK, 1},
		{"an empty stream is an OK", soon, []testserver.Plan{slow(), empty}, []time.Duration{0, 10 * ms}, 13 * ms, codes.OK, -1},
		{"a fatal status ends the race", soon, []testserver.Plan{slow(), breaks(3*ms, codes.Internal)}, []time.Duration{0, 10 * ms}, 13 * ms, codes.Internal, -1},
		{"a non-fatal status sends the next hedge immediately", late, []testserver.Plan{breaks(3*ms, unavailable), breaks(2*ms, unavailable), delivers(ms)}, []time.Duration{0, 3 * ms, 5 * ms}, 6 * ms, codes.OK, 2},
		{"when all have failed the last failure is the call's", soon, []testserver.Plan{breaks(3*ms, unavailable), breaks(2*ms, unavailable), breaks(ms, unavailable)}, []time.Duration{0, 3 * ms, 5 * ms}, 6 * ms, unavailable, -1},
		{"a pushback delays the next hedge", late, []testserver.Plan{breaks(3*ms, unavailable, "40"), delivers(ms)}, []time.Duration{0, 43 * ms}, 44 * ms, codes.OK, 1},
		{"a negative pushback: no more hedges", late, []testserver.Plan{breaks(3*ms, unavailable, "-1")}, []time.Duration{0}, 3 * ms, unavailable, -1},
		{"an unparsable pushback: no more hedges", soon, []testserver.Plan{delivers(50 * ms), breaks(ms, unavailable, "x")}, []time.Duration{0, 10 * ms}, 50 * ms, codes.OK, 0},
	} {
		for _, headerFirst := range []bool{false, true} { // the caller asks for the headers before the first message
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
					client := dial(t, cluster, configured(t, tc.policy))
					began := time.Now()
					finished := 0
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
					if at := time.Since(began); status.Code(err) != tc.code || at != tc.at || winner != tc.winner {
						t.Errorf("%v after %v from attempt %d, want %v after %v from %d", err, at, winner, tc.code, tc.at, tc.winner)
					}
					if _, again := st.Recv(); status.Code(again) != tc.code && again != io.EOF {
						t.Errorf("received again: %v, want %v", again, err)
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

// TestGRPCJava7222_AThrottledStreamFailsAtOnce: the first attempt failed UNAVAILABLE while throttled, and the call
// hung until its deadline.
func TestGRPCJava7222_AThrottledStreamFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(testserver.Attempt) testserver.Plan {
			return breaks(ms, codes.Unavailable)
		}})
		s := configured(t, late, `, "retryThrottling": {"maxTokens": 2, "tokenRatio": 0.1}`)
		client := dial(t, cluster, s)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			st, err := client.ServerStream(ctx, &testpb.Request{Messages: 1})
			if err == nil {
				_, err = st.Recv()
			}
			if status.Code(err) != codes.Unavailable || time.Since(began) != ms {
				t.Errorf("%v after %v, want UNAVAILABLE after 1ms", err, time.Since(began))
			}
			cancel()
		}
		if row := s.Targets()[0]; row.ThrottleTokens != 0 || row.Throttled != 3 || row.Hedges != 0 {
			t.Errorf("%+v", row)
		}
	})
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
