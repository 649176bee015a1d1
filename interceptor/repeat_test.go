package interceptor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
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

// ofACodec is a request of a codec's own.
type ofACodec struct{ text string }

// cutServer stands for the connection and the server of attempts, which are slow or lose their connection.
type cutServer struct {
	slow     bool
	failures int // attempts of a call that fail
	text     string
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
		if header, ok := opt.(grpc.HeaderCallOption); ok && !failed {
			*header.HeaderAddr = metadata.Pairs("attempt", fmt.Sprint(n))
		}
	}
	if failed {
		return status.Error(codes.Unavailable, c.text)
	}
	reply.(*wrapperspb.Int64Value).Value = int64(n)
	return nil
}

// In TestRule03_ACutCallIsRepeated a call fails because its connection was cut. It is sent again, once, if the server said that there
// were too many resets, hedges were sent in the last minute, and a hedge may be sent.
func TestRule03_ACutCallIsRepeated(t *testing.T) {
	calm := cutServer{failures: 1, text: calmCut}
	ofGet := func(option hedge.Option) []hedge.Option {
		return []hedge.Option{hedge.WithMethodOptions("/a/Get", option)}
	}
	for _, tc := range []struct {
		name     string
		server   cutServer
		req      any // nil: a message
		hedges   int // before
		method   string
		options  []hedge.Option
		opts     []grpc.CallOption
		attempts int
	}{
		{"no hedges were sent", calm, nil, 0, "/a/Get", nil, nil, 1},
		{"the server says so", calm, nil, 20, "/a/Get", nil, nil, 2},
		{"the server says nothing", cutServer{failures: 1, text: silentCut}, nil, 20, "/a/Get", nil, nil, 1},
		{"too many pings", cutServer{failures: 1, text: strings.Replace(calmCut, "too much", "too_many_pings", 1)}, nil, 20, "/a/Get", nil, nil, 1},
		{"another error", cutServer{failures: 1, text: "no healthy upstream"}, nil, 20, "/a/Get", nil, nil, 1},
		{"twice", cutServer{failures: 2, text: calmCut}, nil, 20, "/a/Get", nil, nil, 2},
		{"another method", calm, nil, 20, "/a/GetOther", nil, nil, 2},
		{"a method that must not run twice", calm, nil, 20, "/a/Put", nil, nil, 1},
		{"a request that cannot be copied", calm, &ofACodec{"all of it"}, 20, "/a/Get", nil, nil, 1},
		{"not to be hedged", calm, nil, 20, "/a/Get", nil, []grpc.CallOption{hedge.Off()}, 1},
		{"with a limit of resets", calm, nil, 20, "/a/Get", []hedge.Option{hedge.WithResetLimit(40, time.Minute)}, nil, 2},
		{"no budget", calm, nil, 20, "/a/Get", ofGet(hedge.WithBudgetPercent(0)), nil, 1},
		{"no hedges", calm, nil, 20, "/a/Get", ofGet(hedge.WithMaxHedges(0)), nil, 1},
		{"a dry run", calm, nil, 20, "/a/Get", ofGet(hedge.WithDryRun(true)), nil, 1},
		{"switched off", calm, nil, 20, "/a/Get", ofGet(hedge.WithOff(true)), nil, 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
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
			for range tc.hedges {
				if _, err := call("/a/GetSlow", wrapperspb.Int64(1)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // a loser may still read slow
			}
			c.slow = false
			req := tc.req
			if req == nil {
				req = wrapperspb.Int64(1)
			}
			var header metadata.MD
			var outcome stats.Outcome
			reply, err := call(tc.method, req, append(tc.opts, grpc.Header(&header), hedge.Report(&outcome))...)
			last := len(c.attempts) - 1
			if len(c.attempts) != tc.attempts || (err == nil) != (last == c.failures) {
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
	}
}

// In TestRule03_ARepeatedCallIsJudged the repetition of a call gives an answer that WithAcceptable does not accept.
func TestRule03_ARepeatedCallIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepts := func(_ context.Context, _ string, reply any, _ error) bool {
			return reply.(*wrapperspb.Int64Value).GetValue() != 1
		}
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(100), hedge.WithAcceptable(accepts))
		c := &cutServer{failures: 1, text: calmCut}
		c.slow = true
		var outcome stats.Outcome
		reply := new(wrapperspb.Int64Value)
		for range 2 {
			err := interceptor.Unary(s)(t.Context(), "/a/Get", wrapperspb.Int64(1), reply, nil, c.invoke, hedge.Report(&outcome))
			synctest.Wait()
			c.slow = false
			if err != nil {
				t.Fatal(err)
			}
		}
		if reply.Value != 1 || outcome.Winner != 1 || !outcome.Rejected {
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

// In TestRule03_WordsProveLittle servers relay the errors of others, with the words of a connection that was cut. Those of too many
// resets cost some hedges and no more attempts than the budget pays for. Others cost nothing.
func TestRule03_WordsProveLittle(t *testing.T) {
	longtest.Simulation(t)
	const slow, calls = 15, 300
	for _, text := range []string{calmCut, silentCut, "write tcp 10.0.0.1:1->10.0.0.2:2: write: broken pipe"} {
		for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown} {
			for _, hedged := range []bool{false, true} {
				hedgetest.Run(t, fmt.Sprintf("%.20s,%v,hedged=%v", text, code, hedged), func(t *testing.T) {
					relay := func(testserver.Attempt) testserver.Plan {
						return testserver.Plan{Code: code, Message: text, HeaderAtOnce: true}
					}
					cluster, client, s := threeBackends(t, slowBefore(slow, relay), hedged, hedge.WithBudgetPercent(100))
					for id := range uint64(slow) {
						if _, err := client.Unary(t.Context(), &testpb.Request{Id: id + 1}); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.Update(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10*ms))); err != nil { // 10 percent
						t.Fatal(err)
					}
					before := len(cluster.Records())
					for id := range uint64(calls) {
						req := &testpb.Request{Id: slow + 1 + id, Messages: 1}
						if _, err := client.Unary(t.Context(), req); status.Code(err) != code {
							t.Fatal(err)
						}
						st, err := client.ServerStream(t.Context(), req)
						if err == nil {
							_, err = st.Recv()
						}
						if status.Code(err) != code {
							t.Fatal(err)
						}
					}
					most, words := 2*calls, hedged && text == calmCut && code == codes.Unavailable
					if words {
						most += 2 * (2*calls/10 + slow) // what the budget earns and has saved, and one burst that it owes
					}
					if got := len(cluster.Records()) - before; got > most || got < 2*calls {
						t.Errorf("%d attempts for %d calls, %+v", got, 2*calls, s.Stats())
					}
					if rows := s.Methods(); hedged && (rows[0].Resets.Learned > 0) != words {
						t.Errorf("%+v", rows[0].Resets)
					}
					time.Sleep(time.Hour)
					if rows := s.Methods(); hedged && rows[0].Resets.Learned > 0 {
						t.Errorf("an hour later: %+v", rows[0].Resets)
					}
				})
			}
		}
	}
}

// TestRule03_APoisonRequest sends a request that ends the connection of each backend that gets it. Before a hedge is due only one
// gets it, and afterwards as many as have attempts of the call.
func TestRule03_APoisonRequest(t *testing.T) {
	const slow = 15
	for _, tc := range []struct {
		name    string
		takes   time.Duration
		most    int
		options []hedge.Option
	}{
		{"at once", 0, 1, nil},
		{"at once, with a limit of resets", 0, 1, []hedge.Option{hedge.WithResetLimit(1000, time.Minute)}},
		{"late", 15 * ms, 3, nil},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			poison := func(testserver.Attempt) testserver.Plan {
				return testserver.Plan{Delay: tc.takes, Ending: testserver.CloseConn}
			}
			cluster, client, s := threeBackends(t, slowBefore(slow, poison), true, append(tc.options, hedge.WithBudgetPercent(400))...)
			for id := range uint64(slow) {
				if _, err := client.Unary(t.Context(), &testpb.Request{Id: id + 1}); err != nil {
					t.Fatal(err)
				}
			}
			for id := range uint64(8) {
				time.Sleep(10 * time.Second)
				req := &testpb.Request{Id: slow + 1 + id}
				if _, err := client.Unary(t.Context(), req); err == nil {
					t.Fatal("no error")
				}
				synctest.Wait()
				if got := len(cluster.RecordsOf(req.Id)); got > tc.most {
					t.Errorf("request %d reached %d backends, %+v", id, got, s.Stats())
				}
			}
		})
	}
}
