package interceptor_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// Failures of a call whose connection was cut, as gRPC words them.
const (
	silentCut = `connection error: desc = "error reading from server: EOF"`
	calmCut   = "closing transport due to: " + silentCut + `, received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too much"`
)

// readOnce and readAgain are requests of a codec's own.
type (
	readOnce  struct{ from io.Reader }
	readAgain struct{ text string }
)

// known is the option that says that the server counts resets.
var known = []hedge.Option{hedge.WithResetLimit(1000, time.Minute)}

// cutServer stands for the connection and the server of attempts, which are slow or lose their connection.
type cutServer struct {
	slow     bool
	failures int // attempts of a call that fail
	text     string
	header   metadata.MD // that came before the failure
	trailer  metadata.MD // that came with it
	attempts []int
}

func (c *cutServer) invoke(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	n := previousAttempts(ctx)
	if c.slow {
		select {
		case <-time.After(time.Duration(20-10*n) * ms):
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	c.attempts = append(c.attempts, n)
	failed := n < c.failures
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			if *opt.HeaderAddr = c.header; !failed {
				*opt.HeaderAddr = metadata.Pairs("attempt", fmt.Sprint(n))
			}
		case grpc.TrailerCallOption:
			if failed {
				*opt.TrailerAddr = c.trailer
			}
		case grpc.PeerCallOption:
			*opt.PeerAddr = peer.Peer{Addr: &net.TCPAddr{Port: 1}, LocalAddr: &net.TCPAddr{Port: 2}}
		}
	}
	if failed {
		return status.Error(codes.Unavailable, c.text)
	}
	reply.(*wrapperspb.Int64Value).Value = int64(n)
	return nil
}

// In TestRule03_ACutCallIsRepeated a call fails because its connection was cut. It is repeated, once, if the server said that
// resets are the reason, or a limit is set, and if a hedge may be sent.
func TestRule03_ACutCallIsRepeated(t *testing.T) {
	calm := cutServer{failures: 1, text: calmCut}
	with := func(c cutServer, change func(*cutServer)) cutServer {
		change(&c)
		return c
	}
	relayed := metadata.Pairs("content-type", "application/grpc")
	for _, tc := range []struct {
		name     string
		server   cutServer
		req      any // nil: a message
		losers   int // before
		method   string
		options  []hedge.Option
		opts     []grpc.CallOption
		attempts int
	}{
		{"no resets were sent", calm, nil, 0, "/a/Get", nil, nil, 1},
		{"the server says so", calm, nil, 20, "/a/Get", nil, nil, 2},
		{"the server says so, after a header", with(calm, func(c *cutServer) { c.header = metadata.MD{} }), nil, 20, "/a/Get", nil, nil, 1},
		{"the server relays that", with(calm, func(c *cutServer) { c.trailer = relayed }), nil, 20, "/a/Get", nil, nil, 1},
		{"the server says nothing", with(calm, func(c *cutServer) { c.text = silentCut }), nil, 20, "/a/Get", nil, nil, 1},
		{"the server says nothing, with a limit", with(calm, func(c *cutServer) { c.text = silentCut }), nil, 20, "/a/Get", known, nil, 2},
		{"the server relays a cut, with a limit", with(calm, func(c *cutServer) { c.text, c.trailer = silentCut, relayed }), nil, 20, "/a/Get", known, nil, 1},
		{"another error", with(calm, func(c *cutServer) { c.text = "no healthy upstream" }), nil, 20, "/a/Get", nil, nil, 1},
		{"twice", with(calm, func(c *cutServer) { c.failures = 2 }), nil, 20, "/a/Get", nil, nil, 2},
		{"another method", calm, nil, 20, "/a/GetOther", nil, nil, 2},
		{"a method that must not run twice", calm, nil, 20, "/a/Put", nil, nil, 1},
		{"a request that can be read once", calm, &readOnce{strings.NewReader("all of it")}, 20, "/a/Get", nil, nil, 1},
		{"a request that can be read again", calm, &readAgain{"all of it"}, 20, "/a/Get", nil, nil, 2},
		{"not to be hedged", calm, nil, 20, "/a/Get", nil, []grpc.CallOption{hedge.Off()}, 1},
		{"no budget", calm, nil, 20, "/a/Get", []hedge.Option{hedge.WithMethodOptions("/a/Get", hedge.WithBudgetPercent(0))}, nil, 1},
		{"no hedges", calm, nil, 20, "/a/Get", []hedge.Option{hedge.WithMethodOptions("/a/Get", hedge.WithMaxHedges(0))}, nil, 1},
		{"a dry run", calm, nil, 20, "/a/Get", []hedge.Option{hedge.WithMethodOptions("/a/Get", hedge.WithDryRun())}, nil, 1},
		{"switched off", calm, nil, 20, "/a/Get", []hedge.Option{hedge.WithMethodOptions("/a/Get", hedge.WithOff())}, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hedgetest.New(t, append([]hedge.Option{hedge.WithMethods("/a/Get*"), hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithBudgetPercent(100)}, tc.options...)...)
				c, unary := &tc.server, interceptor.Unary(s)
				call := func(method string, req any, opts ...grpc.CallOption) (reply *wrapperspb.Int64Value, err error) {
					reply = wrapperspb.Int64(-1)
					if _, isMessage := req.(*wrapperspb.Int64Value); !isMessage {
						reply = wrapperspb.Int64(0)
					}
					return reply, unary(t.Context(), method, req, reply, nil, c.invoke, opts...)
				}
				c.slow = true
				for range tc.losers {
					if _, err := call("/a/GetSlow", wrapperspb.Int64(1)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // a loser may still read slow
				}
				c.slow = false
				// The first failure with such words fails the call. From then on attempts are watched.
				failures, text := c.failures, c.text
				c.failures, c.text = 1, silentCut
				if _, err := call("/a/GetFirst", wrapperspb.Int64(1)); status.Code(err) != codes.Unavailable || len(c.attempts) != 1 {
					t.Fatalf("the first cut: %v, attempts %v", err, c.attempts)
				}
				time.Sleep(10 * time.Second)
				c.failures, c.text, c.attempts = failures, text, nil

				req := tc.req
				if req == nil {
					req = wrapperspb.Int64(1)
				}
				var header metadata.MD
				var outcome stats.Outcome
				reply, err := call(tc.method, req, append(tc.opts, grpc.Header(&header), hedge.Report(&outcome))...)
				last := len(c.attempts) - 1
				if len(c.attempts) != tc.attempts || (err == nil) != (last == failures) {
					t.Errorf("attempts %v, %v; want %d", c.attempts, err, tc.attempts)
				}
				if won := outcome.Winner; outcome.Attempts != tc.attempts || err == nil && won != last || err != nil && won != 0 {
					t.Errorf("reported: %+v", outcome)
				}
				if err == nil && (reply.Value != int64(last) || first(header) != fmt.Sprint(last)) {
					t.Errorf("reply %v, header %v of attempt %d", reply, header, last)
				}
				if got := s.Stats(); got.Repeated != int64(tc.attempts-1) || got.Hedges < got.Repeated {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// In TestRule03_ARepeatedCallIsJudged the repetition of a call gives an answer that WithAnswer does not accept.
func TestRule03_ARepeatedCallIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepts := func(_ context.Context, _ string, reply any, _ error) bool {
			return reply.(*wrapperspb.Int64Value).GetValue() != 1
		}
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(100), hedge.WithAnswer(accepts), hedge.WithResetLimit(1000, time.Minute))
		c := &cutServer{failures: 1, text: silentCut}
		c.slow = true
		var outcome stats.Outcome
		reply := new(wrapperspb.Int64Value)
		for n := range 3 {
			err := interceptor.Unary(s)(t.Context(), "/a/Get", wrapperspb.Int64(1), reply, nil, c.invoke, hedge.Report(&outcome))
			synctest.Wait()
			c.slow = false // the second call begins to watch
			if n != 1 && err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if reply.Value != 1 || outcome.Winner != 1 || !outcome.Poor {
			t.Errorf("reply %v, %+v", reply, outcome)
		}
	})
}

// threeBackends starts three backends, and a client that calls them in turn. It is hedged only if hedged is true.
func threeBackends(t *testing.T, script testserver.Script, hedged bool, options ...hedge.Option) (*testserver.Cluster, testpb.TestServiceClient, *hedge.Scheduler) {
	t.Helper()
	cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Script: script})
	s := hedgetest.All(t, append([]hedge.Option{hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(2)}, options...)...)
	dial := []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`)}
	if hedged {
		dial = append(dial, hedgetest.Interceptors(s)...)
	}
	conn := cluster.ClientT(t, dial...)
	testserver.ConnectT(t, conn)
	return cluster, testpb.NewTestServiceClient(conn), s
}

// slowBefore makes the primaries of the first ids slow, so that their hedges win and they are reset; later ids are answered by
// the script.
func slowBefore(id uint64, script testserver.Script) testserver.Script {
	return func(a testserver.Attempt) testserver.Plan {
		switch {
		case a.ID > id:
			return script(a)
		case a.Number == 0:
			return testserver.Plan{Delay: 100 * ms}
		}
		return testserver.Plan{Delay: ms}
	}
}

// In TestRule03_WordsProveNothing servers relay the errors of others, with the words of a connection that was cut. No attempt is
// sent for that, nor is a limit put on resets.
func TestRule03_WordsProveNothing(t *testing.T) {
	longtest.Simulation(t)
	const slow, calls = 15, 300
	for _, text := range []string{calmCut, silentCut, "write tcp 10.0.0.1:1->10.0.0.2:2: write: broken pipe"} {
		for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown} {
			for _, header := range []bool{false, true} {
				for _, hedged := range []bool{false, true} {
					t.Run(fmt.Sprintf("%.20s,%v,header=%v,hedged=%v", text, code, header, hedged), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							relay := func(testserver.Attempt) testserver.Plan {
								return testserver.Plan{Code: code, Message: text, HeaderAtOnce: header}
							}
							cluster, client, s := threeBackends(t, slowBefore(slow, relay), hedged, hedge.WithBudgetPercent(100))
							for id := range uint64(slow) {
								if _, err := client.Unary(t.Context(), &testpb.Request{Id: id + 1}); err != nil {
									t.Fatal(err)
								}
							}
							before := len(cluster.Records())
							for id := range uint64(calls) {
								if _, err := client.Unary(t.Context(), &testpb.Request{Id: slow + 1 + id}); status.Code(err) != code {
									t.Fatal(err)
								}
								st, err := client.ServerStream(t.Context(), &testpb.Request{Id: slow + 1 + id, Messages: 1})
								if err == nil {
									_, err = st.Recv()
								}
								if status.Code(err) != code {
									t.Fatal(err)
								}
							}
							if got := len(cluster.Records()) - before; got != 2*calls {
								t.Errorf("%d attempts for %d calls, %+v", got, 2*calls, s.Stats())
							}
							if rows := s.Targets(); hedged && rows[0].Resets.Mode != stats.ResetsUnlimited {
								t.Errorf("%+v", rows[0].Resets)
							}
						})
					})
				}
			}
		}
	}
}

// TestRule03_APoisonRequest sends a request that ends the connection of each backend that gets it, before a hedge is due or just
// after. Two of three backends get it at most, whatever is known of resets.
func TestRule03_APoisonRequest(t *testing.T) {
	const slow = 15
	for _, tc := range []struct {
		name    string
		takes   time.Duration
		most    int
		options []hedge.Option
	}{
		{"nothing known", 0, 1, nil},
		{"with a limit", 0, 2, known},
		{"late", 15 * ms, 2, nil},
		{"late, with a limit", 15 * ms, 2, known},
	} {
		for _, hedged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,hedged=%v", tc.name, hedged), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					poison := func(testserver.Attempt) testserver.Plan {
						return testserver.Plan{Delay: tc.takes, Ending: testserver.CloseConn}
					}
					cluster, client, s := threeBackends(t, slowBefore(slow, poison), hedged, append(tc.options, hedge.WithBudgetPercent(400))...)
					for id := range uint64(slow) {
						if _, err := client.Unary(t.Context(), &testpb.Request{Id: id + 1}); err != nil {
							t.Fatal(err)
						}
					}
					for id := range uint64(8) { // from the first on, attempts are watched
						time.Sleep(10 * time.Second)
						req := &testpb.Request{Id: slow + 1 + id}
						if _, err := client.Unary(t.Context(), req); err == nil {
							t.Fatal("no error")
						}
						synctest.Wait()
						most := tc.most
						if !hedged {
							most = 1
						}
						if got := len(cluster.RecordsOf(req.Id)); got > most {
							t.Errorf("request %d reached %d backends, %+v", id, got, s.Stats())
						}
					}
				})
			})
		}
	}
}

// TestRule03_ACutHedgeBarsNone lets the primary hang, the first hedge fail with the words of a cut connection, or by one, and the
// second be answered.
func TestRule03_ACutHedgeBarsNone(t *testing.T) {
	for _, tc := range []struct {
		name string
		plan testserver.Plan
		most int // calls that may fail: a hedge may have taken its primary's connection, and ended that
	}{
		{"other words", testserver.Plan{Code: codes.Unavailable, Message: "no healthy upstream"}, 0},
		{"relayed words", testserver.Plan{Code: codes.Unavailable, Message: silentCut, HeaderAtOnce: true}, 0},
		{"restart", testserver.Plan{Ending: testserver.CloseConn}, 2},
	} {
		for _, streams := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cluster, client, s := threeBackends(t, func(a testserver.Attempt) testserver.Plan {
						switch a.Number {
						case 0:
							return testserver.Plan{Ending: testserver.Hang}
						case 1:
							return tc.plan
						}
						return testserver.Plan{Delay: ms}
					}, true, hedge.WithBudgetPercent(400))
					failed := 0
					for id := range uint64(50) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						var err error
						if streams {
							var st testpb.TestService_ServerStreamClient
							if st, err = client.ServerStream(ctx, &testpb.Request{Id: id + 1, Messages: 1}); err == nil {
								_, err = st.Recv()
							}
						} else {
							_, err = client.Unary(ctx, &testpb.Request{Id: id + 1})
						}
						cancel()
						if err != nil {
							failed++
						}
						time.Sleep(2 * time.Second)
					}
					if failed > tc.most {
						t.Errorf("streams=%v: %d of 50 calls failed, %d attempts, resets %v", streams, failed, len(cluster.Records()), s.Targets()[0].Resets.Mode)
					}
				})
			})
		}
	}
}
