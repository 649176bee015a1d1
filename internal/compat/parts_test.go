package compat_test

import (
	"context"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/timeout"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
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
