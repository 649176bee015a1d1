package compat_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/timeout"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

const (
	ms    = time.Millisecond
	delay = 10 * ms // of every hedge here
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chain is an interceptor chained with the hedging interceptors.
type chain struct {
	outside, inside             []grpc.UnaryClientInterceptor
	outsideStream, insideStream []grpc.StreamClientInterceptor
	dial                        []grpc.DialOption
	server                      []grpc.ServerOption
}

// world is a cluster of two backends and a client of it that hedges.
type world struct {
	*testserver.Cluster
	scheduler *hedge.Scheduler
	client    testpb.TestServiceClient
}

func start(t *testing.T, c chain, script testserver.Script, options ...hedge.Option) *world {
	t.Helper()
	w := &world{Cluster: testserver.StartT(t, testserver.Config{InMemory: true, Backends: 2, Script: script,
		ServerOptions: c.server})}
	w.scheduler = hedgetest.Fixed(t, delay, append([]hedge.Option{hedge.WithMaxHedges(1)}, options...)...)
	unary := slices.Concat(c.outside, []grpc.UnaryClientInterceptor{interceptor.Unary(w.scheduler)}, c.inside)
	streams := slices.Concat(c.outsideStream, []grpc.StreamClientInterceptor{stream.Interceptor(w.scheduler)},
		c.insideStream)
	conn := w.ClientT(t,
		append(c.dial, grpc.WithChainUnaryInterceptor(unary...), grpc.WithChainStreamInterceptor(streams...))...)
	testserver.ConnectT(t, conn)
	synctest.Wait() // to both backends
	w.client = testpb.NewTestServiceClient(conn)
	return w
}

// outcome is all that a caller gets from one call.
type outcome struct {
	reply           *testpb.Reply // of a stream its last
	err             error
	took            time.Duration
	header, trailer metadata.MD
	peer            peer.Peer
	finished        []error // what OnFinish was told
}

type call = func(w *world, ctx context.Context, req *testpb.Request, opts ...grpc.CallOption) outcome

// kinds are the two ways to make a call.
var kinds = map[string]call{
	"unary": func(w *world, ctx context.Context, req *testpb.Request, opts ...grpc.CallOption) (o outcome) {
		began := time.Now()
		o.reply, o.err = w.client.Unary(ctx, req, o.options(opts)...)
		if o.took = time.Since(began); o.err == nil {
			o.err = testserver.Check(req, 0, o.reply)
		}
		return o
	},
	"stream": func(w *world, ctx context.Context, req *testpb.Request, opts ...grpc.CallOption) (o outcome) {
		began := time.Now()
		defer func() { o.took = time.Since(began) }()
		st, err := w.client.ServerStream(ctx, req, o.options(opts)...)
		if err != nil {
			o.err = err
			return o
		}
		for n := uint32(0); ; n++ {
			reply, err := st.Recv()
			switch {
			case err == io.EOF && n == req.Messages:
				return o
			case err == nil && o.reply != nil && o.reply.Attempt != reply.Attempt:
				err = fmt.Errorf("messages of the attempts %d and %d", o.reply.Attempt, reply.Attempt)
			case err == nil:
				err = testserver.Check(req, n, reply)
			}
			if err != nil {
				o.err = err
				return o
			}
			o.reply = reply
		}
	},
}

func (o *outcome) options(opts []grpc.CallOption) []grpc.CallOption {
	return append(opts, grpc.Header(&o.header), grpc.Trailer(&o.trailer), grpc.Peer(&o.peer),
		grpc.OnFinish(func(err error) { o.finished = append(o.finished, err) }))
}

// says has an attempt name itself in its header and trailer.
func says(a testserver.Attempt, p testserver.Plan) testserver.Plan {
	number := fmt.Sprint(a.Number)
	p.Header, p.Trailer = metadata.Pairs("attempt", number), metadata.Pairs("attempt", number)
	return p
}

// check checks that every part of the caller's outcome comes from one attempt.
func (o *outcome) check(t *testing.T, w *world, attempt uint32, code codes.Code) {
	t.Helper()
	if status.Code(o.err) != code {
		t.Errorf("%v, want %v", o.err, code)
		return
	}
	number := fmt.Sprint(attempt)
	if code == codes.OK && (o.reply.Attempt != attempt ||
		o.peer.Addr.String() != w.Address(int(o.reply.Backend)) ||
		!slices.Equal(o.header.Get("attempt"), []string{number})) {
		t.Errorf("reply of attempt %d by backend %d, header %v, peer %v; want attempt %d", o.reply.Attempt,
			o.reply.Backend, o.header, o.peer, attempt)
	}
	if !slices.Equal(o.trailer.Get("attempt"), []string{number}) {
		t.Errorf("trailer %v; want that of attempt %d", o.trailer, attempt)
	}
	if len(o.finished) != 1 || status.Code(o.finished[0]) != code {
		t.Errorf("OnFinish got %v", o.finished)
	}
}

// eachKind runs a test in virtual time, for unary calls and for streams.
func eachKind(t *testing.T, name string, test func(t *testing.T, call call)) {
	for kind, call := range kinds {
		hedgetest.Run(t, name+"/"+kind, func(t *testing.T) { test(t, call) })
	}
}

func request() *testpb.Request { return &testpb.Request{Id: 7, Messages: 3, ReplyBytes: 100} }

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
