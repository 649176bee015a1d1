package interceptor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule01_CallersReuseTheirMemory lets callers use request, reply, header, trailer and peer again as soon as a call has
// returned, over sockets, while its losers unwind. The same calls are made without the interceptor.
func TestRule01_CallersReuseTheirMemory(t *testing.T) {
	distribution := testserver.DistributionT(t, "straggler")
	for _, hedged := range []bool{false, true} {
		cluster := testserver.StartT(t, testserver.Config{Backends: 2, Latency: distribution, Seed: 1})
		s := hedgetest.Fixed(t, 5*time.Millisecond, hedge.WithMaxHedges(2))
		var options []grpc.DialOption
		if hedged {
			options = append(options, grpc.WithUnaryInterceptor(interceptor.Unary(s)))
		}
		conn := cluster.ClientT(t, options...)
		testserver.ConnectT(t, conn)
		var finished atomic.Int64
		const callers, calls = 8, 20
		var group sync.WaitGroup
		for c := range uint64(callers) {
			group.Go(func() {
				req, reply := &testpb.Request{}, &testpb.Reply{}
				var header, trailer metadata.MD
				var to peer.Peer
				for n := range uint64(calls) {
					req.Id = c*calls + n + 1
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					err := conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, req, reply, grpc.Header(&header), grpc.Trailer(&trailer),
						grpc.Peer(&to), grpc.OnFinish(func(error) { finished.Add(1) }))
					cancel()
					if err != nil || to.Addr == nil {
						t.Errorf("hedged=%v: %v, peer %v", hedged, err, to)
					} else if err := testserver.Check(req, 0, reply); err != nil {
						t.Errorf("hedged=%v: %v", hedged, err)
					}
					proto.Reset(req)
					proto.Reset(reply)
					clear(header)
					clear(trailer)
					to = peer.Peer{}
				}
			})
		}
		group.Wait()
		if got := finished.Load(); got != callers*calls {
			t.Errorf("hedged=%v: OnFinish ran %d times for %d calls", hedged, got, callers*calls)
		}
		if n := s.Stats().HedgeWins; hedged && n == 0 {
			t.Errorf("no hedge has won: %+v", s.Stats())
		}
	}
}
