package interceptor_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// credentialsOf gives an attempt no credentials, or fails.
type credentialsOf func(attempt int) error

func (c credentialsOf) RequireTransportSecurity() bool { return false }
func (c credentialsOf) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	return nil, c(simulation.AttemptOf(ctx))
}

// hedgesMeet starts a server behind an HTTP proxy. The server answers primaries after a delay, and
// hedges is called for hedges. It needs real time: the server of net/http shares channels between
// bubbles before Go 1.26.
func hedgesMeet(t *testing.T, after time.Duration, hedges http.HandlerFunc,
	opts ...grpc.DialOption) testpb.TestServiceClient {
	listener := testserver.NewListener()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	service := grpc.NewServer(grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, st grpc.ServerStream) error {
			select {
			case <-time.After(after):
			case <-st.Context().Done():
			}
			return st.SendMsg(&testpb.Reply{})
		}))
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("grpc-previous-rpc-attempts") != "" && hedges != nil {
			hedges(w, r)
			return
		}
		service.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///proxy",
		append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.Dial(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		service.Stop()
		_ = server.Close()
	})
	testserver.ConnectT(t, conn)
	return testpb.NewTestServiceClient(conn)
}

// TestRule02_OnlyAServersStatusIsFinal: in a method that only reads, a hedge's final status ends
// the race if a gRPC server sent it, with headers or without, and not if it was made of an error of
// the hedge's credentials, an HTTP status or an interceptor.
func TestRule02_OnlyAServersStatusIsFinal(t *testing.T) {
	says := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, h := range header {
				name, value, _ := strings.Cut(h, ": ")
				w.Header().Set(name, value)
			}
			w.WriteHeader(status)
			if len(header) == 3 {
				w.(http.Flusher).Flush()
				w.Header().Set(http.TrailerPrefix+"grpc-status", "5")
			}
		}
	}
	type tc struct {
		name   string
		hedges http.HandlerFunc
		fails  codes.Code // the hedge's credentials
		inside bool       // an interceptor does, and not the credentials
		want   codes.Code
	}
	cases := []tc{
		{name: "HTTP 401", hedges: says(401)}, {name: "HTTP 403", hedges: says(403, "content-type: text/html")},
		{name: "HTTP 404", hedges: says(404)},
		{name: "HTTP 200", hedges: says(200, "content-type: text/html")},
		{name: "a server's, without headers", hedges: says(200, "content-type: application/grpc", "grpc-status: 5"),
			want: codes.NotFound},
		{name: "a server's, with headers", hedges: says(200, "content-type: application/grpc+proto", "more: 1",
			"trailer: grpc-status"), want: codes.NotFound},
	}
	for _, code := range []codes.Code{codes.NotFound, codes.PermissionDenied, codes.Unavailable} {
		cases = append(cases, tc{name: "credentials, " + code.String(), fails: code},
			tc{name: "interceptor, " + code.String(), fails: code, inside: true})
	}
	for _, tc := range cases {
		test := func(t *testing.T, d door) {
			fails := func(n int, inside bool) error {
				if n > 0 && tc.inside == inside {
					return status.Error(tc.fails, "no server's")
				}
				return nil
			}
			below := below(func(ctx context.Context, _ []grpc.CallOption) error {
				return fails(simulation.AttemptOf(ctx), true)
			})
			opts := append(append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1),
				hedge.WithReadOnlyMethods("/*/*"))), below...),
				grpc.WithPerRPCCredentials(credentialsOf(func(n int) error { return fails(n, false) })))
			after := 50 * ms
			if tc.want != codes.OK {
				after = time.Minute
			}
			_, err := callOver(t.Context(), d, hedgesMeet(t, after, tc.hedges, opts...), &testpb.Request{})
			if status.Code(err) != tc.want {
				t.Errorf("%v, want %v", err, tc.want)
			}
		}
		for _, d := range doors {
			t.Run(tc.name+", "+string(d), func(t *testing.T) {
				t.Parallel()
				test(t, d)
			})
		}
	}
}

// TestRule06_ChannelsThatAreNotGRPCs: a channel of another library writes to the options' variables
// while it runs. It calls no OnFinish, and its context has no peer.
func TestRule06_ChannelsThatAreNotGRPCs(t *testing.T) {
	slow := answers(time.Hour)
	for _, tc := range []struct {
		name   string
		delay  time.Duration
		steps  []step
		winner string
	}{
		{"primary", time.Hour, []step{answers(ms)}, "0"},
		{"primary fails", time.Hour, []step{fails(ms, codes.NotFound)}, "0"},
		{"primary cannot be opened", time.Hour, []step{{code: codes.NotFound, closed: true}}, "0"},
		{"hedge", 10 * ms, []step{slow, answers(ms)}, "1"},
		{"hedge fails", 10 * ms, []step{slow, fails(ms, codes.NotFound)}, "1"},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			for _, s := range []*hedge.Scheduler{nil,
				hedgetest.Fixed(t, tc.delay, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))} {
				steps := tc.steps
				if s == nil {
					steps = steps[len(steps)-1:]
				}
				st := &stub{steps: steps, foreign: true}
				var header, trailer metadata.MD
				outcome := stats.Outcome{Attempts: 7}
				_ = st.callBy(d, t.Context(), s, new(wrapperspb.Int64Value), grpc.Header(&header), grpc.Trailer(&trailer),
					hedge.Report(&outcome))
				want := tc.winner
				if s == nil {
					want = "0"
				}
				if first(header) != want || first(trailer) != want || fmt.Sprint(outcome.Winner) != want ||
					outcome.Attempts != len(steps) {
					t.Errorf("hedged %t: header %v, trailer %v, outcome %+v", s != nil, header, trailer, outcome)
				}
			}
		})
	}
}
