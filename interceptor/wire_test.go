package interceptor_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns a client of the cluster's that hedges as s says and is connected to every backend.
func dial(t *testing.T, cluster *testserver.Cluster, s *hedge.Scheduler, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), options...)...)
	testserver.ConnectT(t, conn)
	return conn
}

// serve starts a cluster in memory. Without a script, attempts are answered at once.
func serve(t *testing.T, script testserver.Script) *testserver.Cluster {
	t.Helper()
	return testserver.StartT(t, testserver.Config{InMemory: true, Script: script})
}

// callOver makes a call over gRPC, and returns the last message that it receives.
func callOver(ctx context.Context, d door, client testpb.TestServiceClient, req *testpb.Request,
	opts ...grpc.CallOption) (reply *testpb.Reply, err error) {
	if d == unary {
		return client.Unary(ctx, req, opts...)
	}
	st, err := client.ServerStream(ctx, req, opts...)
	if err == nil && d == headersFirst {
		_, err = st.Header()
	}
	for err == nil {
		var m *testpb.Reply
		if m, err = st.Recv(); err == nil {
			reply = m
		}
	}
	if err == io.EOF {
		err = nil
	}
	return reply, err
}

// TestRule07_LoserIsCancelledOnTheWire reads the frames off real connections: a loser's stream is
// reset with CANCEL as soon as the winner has answered, and a winner's stream never is. If the
// caller gives up, both are losers. No stream is left then.
func TestRule07_LoserIsCancelledOnTheWire(t *testing.T) {
	hang := plan{Ending: testserver.Hang}
	for _, tc := range []struct {
		name   string
		plans  []plan
		winner int // -1: none
		answer codes.Code
	}{
		{name: "hedge wins", plans: []plan{hang, {Delay: ms}}, winner: 1},
		{name: "hedge wins, though the primary would go on",
			plans: []plan{{Delay: 5 * time.Second, HeaderAtOnce: true,
				Messages: 1000, Interval: ms}, {Delay: ms}}, winner: 1},
		{name: "primary wins", plans: []plan{{}, hang}},
		{name: "hedge wins with a final error", plans: []plan{hang, {Delay: ms, Code: codes.NotFound}},
			winner: 1, answer: codes.NotFound},
		{name: "the caller gives up", plans: []plan{hang, hang}, winner: -1, answer: codes.Canceled},
	} {
		for _, d := range doors[:2] {
			t.Run(tc.name+", "+string(d), func(t *testing.T) {
				const calls = 3
				hedged := make(chan struct{}, calls)
				arrived := func() { // the hedge has
					select {
					case <-hedged:
					case <-time.After(10 * time.Second):
					}
				}
				cluster := testserver.StartT(t, testserver.Config{Script: func(a testserver.Attempt) plan {
					if a.Number == 1 {
						hedged <- struct{}{}
					} else if tc.winner == 0 {
						arrived()
					}
					return tc.plans[a.Number]
				}})
				wire := testserver.NewWire(cluster.Dial)
				s := hedgetest.Fixed(t, 20*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))
				client := testpb.NewTestServiceClient(dial(t, cluster, s, grpc.WithContextDialer(wire.Dial)))
				for i := range calls {
					ctx, cancel := context.WithCancel(t.Context())
					if tc.winner < 0 {
						go func() { arrived(); cancel() }()
					}
					reply, err := callOver(ctx, d, client, &testpb.Request{Id: uint64(i + 1), Messages: 20})
					if cancel(); status.Code(err) != tc.answer || err == nil && int(reply.Attempt) != tc.winner {
						t.Fatalf("call %d: %v, %v", i, reply, err)
					}
				}
				cluster.WaitIdleT(t)
				cluster.Close()
				wire.Wait()
				if err := goleak.Find(); err != nil {
					t.Error(err)
				}

				// One connection, with two streams for each call. The records have the losers of
				// the two.
				lost := calls
				if tc.winner < 0 {
					lost = 2 * calls
				}
				streams := wire.Frames(http2.FrameHeaders, true)
				resets := wire.Frames(http2.FrameRSTStream, true)
				if len(streams) != 2*calls || len(resets) != lost {
					t.Fatalf("%d streams and %d resets, want %d and %d", len(streams), len(resets), 2*calls, lost)
				}
				for i, reset := range resets {
					of := i * calls / lost
					one, two := streams[2*of].Stream, streams[2*of+1].Stream
					if reset.Stream != one && reset.Stream != two || reset.Code != http2.ErrCodeCancel {
						t.Errorf("call %d: RST_STREAM %v on stream %d, want CANCEL on %d or %d", of, reset.Code, reset.Stream, one, two)
					}
				}
				for _, r := range cluster.Records() {
					if loses := r.Number != tc.winner; r.WasCancelled() != loses || loses && len(r.Sent) > 0 {
						t.Errorf("attempt %d of request %d: cancelled %v, %d messages", r.Number, r.ID, r.WasCancelled(), len(r.Sent))
					}
				}
			})
		}
	}
}

// TestRule01_NearTies makes calls with two attempts that meet at the server and then answer within
// microseconds of each other. Messages, header, trailer and error name their attempt. One call in
// five is answered with an error, and one stream in five is empty. Callers reuse their memory, and
// scribble on it as soon as they have it. The race detector would find any use of it by a loser.
func TestRule01_NearTies(t *testing.T) {
	const callers = 8
	calls := longtest.Size(100, 200)
	for _, d := range []door{unary, streaming} {
		t.Run(string(d), func(t *testing.T) {
			var ties testserver.Ties
			cluster := serve(t, func(a testserver.Attempt) plan {
				_ = ties.Meet(t.Context(), a.ID)
				number := strconv.Itoa(a.Number)
				said := metadata.Pairs("attempt", number)
				if a.ID%5 == 4 {
					return plan{Trailer: said, Code: codes.NotFound, Message: number}
				}
				return plan{Header: said, Trailer: said, Empty: d == streaming && a.ID%5 == 3}
			})
			s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
			conn := dial(t, cluster, s)
			var wins [2]atomic.Int64
			var group sync.WaitGroup
			for c := range callers {
				group.Go(func() {
					req, reply, got := &testpb.Request{}, &testpb.Reply{}, observed{}
					for i := range calls {
						req.Id, req.Messages, req.ReplyBytes = uint64(c*calls+i), 3, uint32(i)
						number, err := strconv.Atoi(tie(t, conn, d, req, reply, &got))
						if err != nil || t.Failed() {
							return
						}
						wins[number].Add(1)
						proto.Reset(req)
						clear(got.header)
						clear(got.trailer)
					}
				})
			}
			group.Wait()
			if got := s.Stats(); got.Hedged != int64(callers*calls) || got.PrimaryWins != wins[0].Load() ||
				got.HedgeWins != wins[1].Load() || got.PrimaryWins == 0 || got.HedgeWins == 0 {
				t.Errorf("won by the primary %d, by the hedge %d: %+v", wins[0].Load(), wins[1].Load(), got)
			}
		})
	}
}

// tie makes one call, checks that all parts of its outcome are from one attempt, and returns which.
func tie(t *testing.T, conn *grpc.ClientConn, d door, req *testpb.Request, reply *testpb.Reply, got *observed) string {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stale := metadata.Pairs("attempt", "stale")
	*got = observed{header: stale.Copy(), trailer: stale.Copy()}
	var finish []codes.Code
	opts := []grpc.CallOption{hedge.After(0), grpc.Header(&got.header), grpc.Trailer(&got.trailer), grpc.Peer(&got.peer),
		grpc.OnFinish(func(err error) { finish = append(finish, status.Code(err)) })}
	var said []string // by each part of the outcome
	received := uint32(0)
	take := func() error {
		err := testserver.Check(req, received, reply)
		said = append(said, strconv.Itoa(int(reply.Attempt)))
		received++
		for i := range reply.Payload { // it is the caller's
			reply.Payload[i] = 0xff
		}
		reply.Id, reply.Attempt = 1<<63, 99
		return err
	}
	var err error
	code, messages := codes.OK, req.Messages
	if d == unary {
		messages = 1
		if err = conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, req, reply, opts...); err == nil {
			err = take()
		}
	} else {
		var st grpc.ClientStream
		if st, err = conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0],
			testpb.TestService_ServerStream_FullMethodName, opts...); err == nil {
			err = st.SendMsg(req)
		}
		for err == nil {
			if err = st.RecvMsg(reply); err == nil {
				err = take()
			}
		}
		if err == io.EOF {
			err = nil
		}
		said = append(said, first(st.Trailer()))
	}
	switch {
	case req.Id%5 == 4:
		code, messages = codes.NotFound, 0
		said = append(said, status.Convert(err).Message())
	case d == streaming && req.Id%5 == 3:
		messages = 0
		fallthrough
	default:
		said = append(said, first(got.header))
	}
	said = slices.Compact(append(said, first(got.trailer)))
	if status.Code(err) != code || received != messages || len(said) != 1 || !slices.Equal(finish, []codes.Code{code}) ||
		got.peer.Addr == nil {
		t.Errorf("call %d: %v after %d messages; the parts are of the attempts %q; OnFinish %v, peer %v", req.Id, err,
			received, said, finish, got.peer)
	}
	return said[0]
}

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
