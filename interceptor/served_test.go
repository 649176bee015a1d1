package interceptor_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// hedgesMeet connects to a server of net/http, which answers primaries after a delay, in real time,
// and hedges too if no handler is given for these.
func hedgesMeet(t *testing.T, after time.Duration, hedges http.HandlerFunc,
	opts ...grpc.DialOption) testpb.TestServiceClient {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("grpc-previous-rpc-attempts") != "" && hedges != nil {
			hedges(w, r)
			return
		}
		select {
		case <-time.After(after):
		case <-r.Context().Done():
		}
		w.Header().Set("content-type", "application/grpc")
		w.Header().Set(http.TrailerPrefix+"grpc-status", "0")
		w.Write(make([]byte, 5)) // an empty message
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	conn, err := grpc.NewClient(server.Listener.Addr().String(),
		append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
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
	for _, tc := range []struct {
		name   string
		hedges http.HandlerFunc
		fails  string // in its place: a part of the hedge
		want   codes.Code
	}{
		{name: "HTTP 403", hedges: says(403, "content-type: text/html")},
		{name: "HTTP 404", hedges: says(404)},
		{name: "HTTP 200", hedges: says(200, "content-type: text/html")},
		{name: "a server's, without headers", hedges: says(200, "content-type: application/grpc", "grpc-status: 5"),
			want: codes.NotFound},
		{name: "a server's, with headers", hedges: says(200, "content-type: application/grpc+proto", "more: 1",
			"trailer: grpc-status"), want: codes.NotFound},
		{name: "of credentials", fails: "credentials"},
		{name: "of an interceptor", fails: "interceptor"},
	} {
		for _, d := range doors {
			t.Run(tc.name+", "+string(d), func(t *testing.T) {
				t.Parallel()
				fails := func(part string, attempt int) error {
					if attempt > 0 && tc.fails == part {
						return status.Error(codes.NotFound, "no server's")
					}
					return nil
				}
				below := below(func(ctx context.Context, _ []grpc.CallOption) error {
					return fails("interceptor", simulation.AttemptOf(ctx))
				})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))
				opts := append(append(hedgetest.Interceptors(s), below...), grpc.WithPerRPCCredentials(credentialsOf(
					func(n int) error { return fails("credentials", n) })))
				after := 50 * ms
				if tc.want != codes.OK {
					after = time.Minute
				}
				_, err := callOver(t.Context(), d, hedgesMeet(t, after, tc.hedges, opts...), &testpb.Request{})
				if status.Code(err) != tc.want {
					t.Errorf("%v, want %v", err, tc.want)
				}
			})
		}
	}
}

// TestRule06_ChannelsThatAreNotGRPCs: a channel of another library writes to the options' variables
// while it runs. It calls no OnFinish, and its context has no peer.
func TestRule06_ChannelsThatAreNotGRPCs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps []step // a hedge wins if there are two
	}{
		{"primary", []step{answers(ms)}},
		{"primary fails", []step{fails(ms, codes.NotFound)}},
		{"primary cannot be opened", []step{{code: codes.NotFound, broken: true}}},
		{"hedge", []step{silent(), answers(ms)}},
		{"hedge fails", []step{silent(), fails(ms, codes.NotFound)}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			for _, s := range []*hedge.Scheduler{nil,
				hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))} {
				st := &stub{steps: tc.steps, foreign: true}
				if s == nil {
					st.steps = tc.steps[len(tc.steps)-1:]
				}
				var header, trailer metadata.MD
				outcome := stats.Outcome{Attempts: 7}
				_ = st.callBy(d, t.Context(), s, new(wrapperspb.Int64Value), grpc.Header(&header), grpc.Trailer(&trailer),
					hedge.Report(&outcome))
				if want := len(st.steps) - 1; first(header) != fmt.Sprint(want) || first(trailer) != fmt.Sprint(want) ||
					outcome.Winner != want || outcome.Attempts != want+1 {
					t.Errorf("hedged %t: header %v, trailer %v, outcome %+v", s != nil, header, trailer, outcome)
				}
			}
		})
	}
}
