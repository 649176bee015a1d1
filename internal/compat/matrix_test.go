package compat_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/timeout"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

var retries = []retry.CallOption{retry.WithMax(3), retry.WithCodes(codes.Unavailable),
	retry.WithBackoff(retry.BackoffLinear(time.Millisecond))}

var (
	retryUnary   = retry.UnaryClientInterceptor(retries...)
	retryStream  = retry.StreamClientInterceptor(retries...)
	silence      = logging.LoggerFunc(func(context.Context, logging.Level, string, ...any) {})
	logUnary     = logging.UnaryClientInterceptor(silence)
	logStream    = logging.StreamClientInterceptor(silence)
	timeoutUnary = timeout.UnaryClientInterceptor(time.Second)
)

func unaries(i ...grpc.UnaryClientInterceptor) []grpc.UnaryClientInterceptor   { return i }
func streams(i ...grpc.StreamClientInterceptor) []grpc.StreamClientInterceptor { return i }

// retryPolicy makes gRPC retry UNAVAILABLE after about 1 ms.
const retryPolicy = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	 "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// jsonCodec encodes messages in JSON.
type jsonCodec struct{}

func (jsonCodec) Name() string                  { return "json" }
func (jsonCodec) Marshal(v any) ([]byte, error) { return protojson.Marshal(v.(proto.Message)) }
func (jsonCodec) Unmarshal(data []byte, v any) error {
	return protojson.Unmarshal(data, v.(proto.Message))
}

func init() { encoding.RegisterCodec(jsonCodec{}) }

// token is a credential of each RPC.
type token struct{}

func (token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "token"}, nil
}
func (token) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = token{}

// nothing implements stats.Handler without effect.
type nothing struct{}

func (nothing) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (nothing) HandleRPC(context.Context, stats.RPCStats)                         {}
func (nothing) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (nothing) HandleConn(context.Context, stats.ConnStats)                       {}

// combinations are the surroundings of a hedged call. Each behaves the same whichever attempt wins.
var combinations = []struct {
	name    string
	chain   chain
	opts    []grpc.CallOption
	request *testpb.Request
	retried bool // an attempt, or a call, that fails UNAVAILABLE is made again
}{
	{name: "nothing else"},
	{name: "retry outside", chain: chain{outside: unaries(retryUnary), outsideStream: streams(retryStream)},
		retried: true},
	{name: "retry inside", chain: chain{inside: unaries(retryUnary), insideStream: streams(retryStream)}, retried: true},
	{name: "logging outside", chain: chain{outside: unaries(logUnary), outsideStream: streams(logStream)}},
	{name: "logging inside", chain: chain{inside: unaries(logUnary), insideStream: streams(logStream)}},
	{name: "timeout outside", chain: chain{outside: unaries(timeoutUnary)}},
	{name: "timeout inside", chain: chain{inside: unaries(timeoutUnary)}},
	{name: "all outside", chain: chain{outside: unaries(timeoutUnary, logUnary, retryUnary),
		outsideStream: streams(logStream, retryStream)}, retried: true},
	{name: "all inside", chain: chain{inside: unaries(retryUnary, logUnary, timeoutUnary),
		insideStream: streams(retryStream, logStream)}, retried: true},
	{name: "on both sides",
		chain: chain{outside: unaries(logUnary, timeoutUnary), inside: unaries(retryUnary, logUnary),
			outsideStream: streams(logStream), insideStream: streams(retryStream, logStream)}, retried: true},
	{name: "retryPolicy", chain: chain{dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}},
		retried: true},
	{name: "WaitForReady", opts: []grpc.CallOption{grpc.WaitForReady(true)}},
	{name: "compression", opts: []grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
	{name: "per-RPC credentials of the call", opts: []grpc.CallOption{grpc.PerRPCCredentials(token{})}},
	{name: "per-RPC credentials of the connection",
		chain: chain{dial: []grpc.DialOption{grpc.WithPerRPCCredentials(token{})}}},
	{name: "large messages", chain: chain{server: []grpc.ServerOption{grpc.MaxRecvMsgSize(16 << 20)}},
		opts:    []grpc.CallOption{grpc.MaxCallRecvMsgSize(16 << 20)},
		request: &testpb.Request{Id: 7, Messages: 3, ReplyBytes: 5 << 20, Payload: make([]byte, 1000<<10)}},
	{name: "custom codec", opts: []grpc.CallOption{grpc.CallContentSubtype("json")}},
	{name: "stats.Handler", chain: chain{dial: []grpc.DialOption{grpc.WithStatsHandler(nothing{})},
		server: []grpc.ServerOption{grpc.StatsHandler(nothing{})}}},
}

// TestCombinations has a primary, a hedge, or none, win in each combination.
func TestCombinations(t *testing.T) {
	for _, tc := range combinations {
		req := request()
		if tc.request != nil {
			req = tc.request
		}
		for _, race := range []struct {
			name   string
			plans  []testserver.Plan
			winner uint32
			took   time.Duration
			code   codes.Code
			opts   []hedge.Option
		}{
			{"no hedge", []testserver.Plan{{Delay: 5 * ms}}, 0, 5 * ms, codes.OK, nil},
			{"the primary wins", []testserver.Plan{{Delay: 30 * ms}, {Delay: time.Hour}}, 0, 30 * ms, codes.OK, nil},
			{"the hedge wins", []testserver.Plan{{Delay: time.Hour}, {Delay: 5 * ms}}, 1, 15 * ms, codes.OK, nil},
			{"the hedge of a read wins with an error", []testserver.Plan{{Delay: time.Hour},
				{Delay: 5 * ms, Code: codes.NotFound}}, 1, 15 * ms, codes.NotFound,
				[]hedge.Option{hedge.WithReadOnlyMethods("/*/*")}},
			{"the hedge of a write does not",
				[]testserver.Plan{{Delay: 30 * ms}, {Delay: 5 * ms, Code: codes.NotFound}}, 0, 30 * ms, codes.OK, nil},
			{"a hedge that fails leaves it to the primary",
				[]testserver.Plan{{Delay: 30 * ms}, {Delay: 5 * ms, Code: codes.Internal}}, 0, 30 * ms, codes.OK, nil},
			{"both fail", []testserver.Plan{{Delay: 30 * ms, Code: codes.Internal},
				{Delay: 5 * ms, Code: codes.Internal}}, 0, 30 * ms, codes.Internal, nil},
		} {
			eachKind(t, tc.name+"/"+race.name, func(t *testing.T, call call) {
				w := start(t, tc.chain,
					func(a testserver.Attempt) testserver.Plan { return says(a, race.plans[a.Number]) }, race.opts...)
				o := call(w, t.Context(), req, slices.Clone(tc.opts)...)
				o.check(t, w, race.winner, race.code)
				synctest.Wait()
				if got := w.Counts(); got.Attempts != int64(len(race.plans)) || got.InFlight != 0 || o.took != race.took {
					t.Errorf("after %v, want %v; the servers saw %+v", o.took, race.took, got)
				}
			})
		}
	}
}

// TestCombinations_UnavailableOnce makes the first attempt fail with UNAVAILABLE: hedging does not
// retry, and a retry policy retries as without hedging.
func TestCombinations_UnavailableOnce(t *testing.T) {
	for _, tc := range combinations {
		eachKind(t, tc.name, func(t *testing.T, call call) {
			var failed atomic.Bool
			w := start(t, tc.chain, func(a testserver.Attempt) testserver.Plan {
				p := says(a, testserver.Plan{})
				if !failed.Swap(true) { // without headers, which would commit the call, and gRPC retry no more
					p.Code, p.Header = codes.Unavailable, nil
				}
				return p
			})
			o := call(w, t.Context(), request(), slices.Clone(tc.opts)...)
			if !tc.retried {
				o.check(t, w, 0, codes.Unavailable)
			} else if o.err != nil || w.scheduler.Stats().Hedges != 0 || w.Counts().Attempts != 2 {
				t.Errorf("%v, %+v, %+v", o.err, w.scheduler.Stats(), w.Counts())
			}
		})
	}
}
