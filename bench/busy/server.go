package busy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

// withoutShed is the metadata of calls for which the servers behave as if they had no package shed.
const withoutShed = "bench-without-shed"

// Serve runs a server. Its handlers keep their processor for an exponential time with the given mean,
// or sleep for that time. It writes its address to w, and returns when r ends.
func Serve(r io.Reader, w io.Writer, mean time.Duration, sleeps bool) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	bound, err := shed.New()
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		if len(metadata.ValueFromIncomingContext(ctx, withoutShed)) > 0 {
			return handler(ctx, req)
		}
		return bound.Unary(ctx, req, info, handler)
	}))
	testpb.RegisterTestServiceServer(server, &service{mean: mean, sleeps: sleeps})
	fmt.Fprintln(w, listener.Addr())
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	_, err = io.Copy(io.Discard, r)
	return err
}

type service struct {
	testpb.UnimplementedTestServiceServer
	mean   time.Duration
	sleeps bool
}

func (s *service) Unary(ctx context.Context, req *testpb.Request) (*testpb.Reply, error) {
	attempt := metadata.ValueFromIncomingContext(ctx, "grpc-previous-rpc-attempts")
	random := rand.New(rand.NewPCG(req.Id, uint64(len(attempt)))) // calls of other arms take as long
	if d := time.Duration(random.ExpFloat64() * float64(s.mean)); s.sleeps {
		time.Sleep(d)
	} else {
		hold(d)
	}
	return &testpb.Reply{Id: req.Id}, nil
}

// draw returns an exponential time.
func draw(mean time.Duration) time.Duration {
	return time.Duration(rand.ExpFloat64() * float64(mean))
}
