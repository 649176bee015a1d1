package interceptor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// private has a field that protobuf does not encode.
type private struct {
	note
	own int
}

// TestRequest_ThatIsNotRepeated leaves the call to its primary, and counts that once however many
// hedges are due. The tests of internal/attempt have all kinds of requests.
func TestRequest_ThatIsNotRepeated(t *testing.T) {
	large := wrapperspb.Bytes(make([]byte, 1<<20))
	for name, tc := range map[string]struct {
		req    any
		hedges int64
	}{
		"large":                {large, 0},
		"all but too large":    {wrapperspb.Bytes(large.Value[:len(large.Value)-64]), 2},
		"with a private field": {&private{own: 7}, 0},
		"it can be sent once":  {make(chan int), 0},
	} {
		for _, code := range []codes.Code{codes.OK, codes.Unavailable} {
			eachDoor(t, fmt.Sprint(name, "/", code), func(t *testing.T, d door) {
				s := hedgetest.Fixed(t, 10*ms)
				st := &stub{steps: []step{fails(50*ms, code), silent(), silent()}, request: tc.req}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := st.callBy(d, ctx, s, wrapperspb.Int64(2))
				if took := time.Since(began); tc.hedges == 0 && (status.Code(err) != code || took != 50*ms) {
					t.Errorf("%v after %v", err, took)
				}
				want := min(1, tc.hedges)
				if stats := s.Stats(); stats.Hedges != tc.hedges || stats.Hedged != want || stats.NotReplayable != 1-want {
					t.Errorf("%+v", stats)
				}
			})
		}
	}
}

// TestRequest_IsCopiedOnce lets all hedges of a call send the same copy, which is not the caller's
// request.
func TestRequest_IsCopiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := wrapperspb.Bytes([]byte("request"))
		sent := make([]any, 4)
		invoke := func(ctx context.Context, _ string, req, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			sent[simulation.AttemptOf(ctx)] = req
			_, err := hedgetest.Taking(100 * ms)(ctx)
			return err
		}
		if err := interceptor.Unary(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(3)))(t.Context(), "/a/B", req,
			wrapperspb.Int64(2), nil, invoke); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if sent[0] != any(req) || sent[1] == any(req) || sent[1] != sent[2] || sent[2] != sent[3] ||
			!proto.Equal(sent[1].(proto.Message), req) {
			t.Errorf("%p; %p, %p, %p, %p", req, sent[0], sent[1], sent[2], sent[3])
		}
	})
}
