package busy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

// withoutShed is the metadata of calls for which the servers behave as if they had no package shed.
const withoutShed = "bench-without-shed"

// Serve runs a server whose handlers compute for an exponential time with the given mean, or sleep
// for it. It writes its address to w, and returns when r ends.
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
	testpb.RegisterTestServiceServer(server, &service{work: newWork(mean), sleeps: sleeps})
	fmt.Fprintln(w, listener.Addr())
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	_, err = io.Copy(io.Discard, r)
	return err
}

type service struct {
	testpb.UnimplementedTestServiceServer
	work   work
	sleeps bool
}

func (s *service) Unary(_ context.Context, req *testpb.Request) (*testpb.Reply, error) {
	d := time.Duration(rand.ExpFloat64() * float64(s.work.mean))
	if s.sleeps {
		time.Sleep(d)
	} else {
		s.work.do(d)
	}
	return &testpb.Reply{Id: req.Id}, nil
}

// work computes for times that are measured in steps, so that work takes longer when the processor
// is shared.
type work struct {
	mean time.Duration
	step time.Duration // of 1,000 iterations, on an idle processor
}

func newWork(mean time.Duration) work {
	fastest := time.Hour
	for range 200 {
		began := time.Now()
		for range 10 {
			compute()
		}
		fastest = min(fastest, time.Since(began)/10)
	}
	return work{mean, max(fastest, 1)}
}

// random computes for an exponential time.
func (w work) random() { w.do(time.Duration(rand.ExpFloat64() * float64(w.mean))) }

func (w work) do(d time.Duration) {
	for range d / w.step {
		compute()
	}
}

var sink atomic.Uint64

func compute() {
	x := uint64(1)
	for i := range uint64(1000) {
		x = x*6364136223846793005 + i
	}
	sink.Store(x)
}
