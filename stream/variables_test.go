package stream_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule06_VariablesOfAStreamThatIsCancelled: when Recv returns the cancellation of a stream, the
// variables are filled and final, although gRPC may call OnFinish later, on another goroutine.
func TestRule06_VariablesOfAStreamThatIsCancelled(t *testing.T) {
	late := inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
		return open(grpc.OnFinish(func(error) { time.Sleep(5 * ms) }))
	})
	for _, tc := range []struct {
		name  string
		delay time.Duration // 0: plain gRPC
	}{{"plain", 0}, {"the primary's", time.Hour}, {"a hedge's", 10 * ms}} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			hangs := testserver.Plan{Header: metadata.Pairs("from", "server"), After: 1, Ending: testserver.Hang}
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(hangs, hangs)})
			s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithMaxHedges(1))
			if tc.delay == 10*ms {
				cluster.SetScript(testserver.ByNumber(testserver.Plan{Delay: time.Hour}, hangs))
			}
			client := dial(t, cluster, s, late)
			for range 20 { // either goroutine may be the first to see the end
				ctx, cancel := context.WithCancel(t.Context())
				var header, trailer metadata.MD
				var to peer.Peer
				st := open(ctx, t, client, &testpb.Request{Messages: 2}, grpc.Header(&header), grpc.Trailer(&trailer),
					grpc.Peer(&to))
				if _, err := st.Recv(); err != nil {
					t.Error(err)
				}
				time.AfterFunc(ms/10, cancel)
				if _, err := st.Recv(); err == nil || header.Get("from") == nil || trailer.Len() > 0 || to.Addr == nil {
					t.Errorf("%v: header %v, trailer %v, peer %v", err, header, trailer, to.Addr)
				}
				time.Sleep(10 * ms)
			}
		})
	}
}

// slowHeader is a stream with a Header that returns just after the call was canceled.
type slowHeader struct{ grpc.ClientStream }

func (s slowHeader) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	<-s.Context().Done()
	return header, err
}

// TestRule06_VariablesBesideHeader is for the race detector: Header decides the call while Recv
// returns how it has ended.
func TestRule06_VariablesBesideHeader(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{InMemory: true,
		Script: testserver.ByNumber(testserver.Plan{HeaderAtOnce: true, Ending: testserver.Hang})})
	slow := inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
		st, err := open()
		return slowHeader{st}, err
	})
	client := dial(t, cluster, hedgetest.Fixed(t, time.Hour), slow)
	for range longtest.Size(500, 5000) {
		ctx, cancel := context.WithCancel(t.Context())
		var to peer.Peer
		st := open(ctx, t, client, &testpb.Request{}, grpc.Peer(&to))
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			_, _ = st.Header()
		}()
		time.AfterFunc(ms/10, cancel)
		if _, err := st.Recv(); err == nil || to.Addr == nil {
			t.Errorf("%v, from %v", err, to.Addr)
		}
		<-asked
	}
}
