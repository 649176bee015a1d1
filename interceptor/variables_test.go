package interceptor_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// variables are those of one caller's options, each with a value of its own before the call.
func variables(name string) (*observed, []grpc.CallOption) {
	o := &observed{header: metadata.Pairs("attempt", name+" header"), trailer: metadata.Pairs("attempt", name+" trailer"),
		peer: peer.Peer{Addr: &net.UnixAddr{Name: name + " peer"}}}
	return o, []grpc.CallOption{grpc.Header(&o.header), grpc.Trailer(&o.trailer), grpc.Peer(&o.peer)}
}

func (o *observed) says() [3]string {
	return [3]string{first(o.header), first(o.trailer), o.peer.Addr.String()}
}

// TestRule06_EachOptionHasItsVariable gives a call two options of each kind, as an outer interceptor that adds its own does. The
// variables then hold what they hold with plain gRPC. A call that fails before there is a stream changes none of them.
func TestRule06_EachOptionHasItsVariable(t *testing.T) {
	answer := testserver.Plan{Delay: 20 * ms, Header: metadata.Pairs("attempt", "answer"), Trailer: metadata.Pairs("attempt", "answer")}
	slow := testserver.Plan{Delay: time.Hour}
	for _, tc := range []struct {
		name  string
		delay time.Duration // 0: plain gRPC
		plans []testserver.Plan
		opt   grpc.CallOption
		code  codes.Code
	}{
		{"plain, no stream", 0, []testserver.Plan{answer}, grpc.CallContentSubtype("unknown"), codes.Internal},
		{"no stream", time.Hour, []testserver.Plan{answer}, grpc.CallContentSubtype("unknown"), codes.Internal},
		{"plain, an answer", 0, []testserver.Plan{answer}, grpc.EmptyCallOption{}, codes.OK},
		{"the primary's answer", 10 * ms, []testserver.Plan{answer, slow}, grpc.EmptyCallOption{}, codes.OK},
		{"a hedge's answer", 10 * ms, []testserver.Plan{slow, answer}, grpc.EmptyCallOption{}, codes.OK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
				var s *hedge.Scheduler
				if tc.delay > 0 {
					s = hedgetest.Fixed(t, tc.delay, hedge.WithMaxHedges(1))
				}
				one, options := variables("one")
				two, more := variables("two")
				wantOne, wantTwo := one.says(), two.says()
				_, err := testpb.NewTestServiceClient(dial(t, cluster, s)).Unary(t.Context(), &testpb.Request{Id: 1},
					append(append(options, more...), tc.opt)...)
				if tc.code == codes.OK {
					wantOne = [3]string{"answer", "answer", cluster.Address(0)}
					wantTwo = wantOne
				}
				if status.Code(err) != tc.code || one.says() != wantOne || two.says() != wantTwo {
					t.Errorf("%v\n got %q and %q\nwant %q and %q", err, one.says(), two.says(), wantOne, wantTwo)
				}
			})
		})
	}
}
