package stream_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// opaque is a request that only slowCodec can read.
type opaque struct{ id uint64 }

// slowCodec takes its time to encode all requests but the first, and looks at them at the end of that.
type slowCodec struct {
	encoded atomic.Int64
	read    chan uint64
}

func (c *slowCodec) Name() string { return "proto" }

func (c *slowCodec) Marshal(v any) ([]byte, error) {
	if c.encoded.Add(1) > 1 {
		time.Sleep(5 * ms)
	}
	id := v.(*opaque).id
	c.read <- id
	return proto.Marshal(&testpb.Request{Id: id, Messages: 1})
}

func (c *slowCodec) Unmarshal(data []byte, v any) error {
	return proto.Unmarshal(data, v.(proto.Message))
}

// TestOpaqueRequest_LosersHaveEnded changes a request as soon as the stream is decided, while a hedge is encoding it.
func TestOpaqueRequest_LosersHaveEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		plan   testserver.Plan
		decide func(st grpc.ClientStream) error
	}{
		"message": {testserver.Plan{Delay: 12 * ms}, func(st grpc.ClientStream) error { return st.RecvMsg(new(testpb.Reply)) }},
		"headers": {testserver.Plan{Delay: 12 * ms}, func(st grpc.ClientStream) error {
			_, err := st.Header()
			return err
		}},
		"failure": {testserver.Plan{Delay: 12 * ms, Code: codes.NotFound}, func(st grpc.ClientStream) error {
			if err := st.RecvMsg(new(testpb.Reply)); status.Code(err) != codes.NotFound {
				return err
			}
			return nil
		}},
		"headers beside a Recv": {testserver.Plan{HeaderAtOnce: true, Delay: 100 * ms}, func(st grpc.ClientStream) error {
			go func() { _ = st.RecvMsg(new(testpb.Reply)) }()
			time.Sleep(12 * ms)
			_, err := st.Header()
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plan, testserver.Plan{})})
				conn := cluster.ClientT(t, hedging(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))))
				testserver.ConnectT(t, conn)
				codec := &slowCodec{read: make(chan uint64, 2)}
				began := time.Now()
				st, err := conn.NewStream(t.Context(), &testpb.TestService_ServiceDesc.Streams[0], method, grpc.ForceCodec(codec))
				if err != nil {
					t.Fatal(err)
				}
				req := &opaque{id: 7}
				if err := errors.Join(st.SendMsg(req), st.CloseSend()); err != nil {
					t.Fatal(err)
				}
				if err := tc.decide(st); err != nil || time.Since(began) != 15*ms {
					t.Errorf("%v after %v, while a hedge encodes the request until 15ms", err, time.Since(began))
				}
				req.id = 8 // it is the caller's again
				synctest.Wait()
				time.Sleep(time.Second)
				if len(codec.read) != 2 {
					t.Fatalf("encoded %d times, so this shows nothing", len(codec.read))
				}
				for range 2 {
					if id := <-codec.read; id != 7 {
						t.Errorf("a loser has read %d", id)
					}
				}
			})
		})
	}
}

// TestRecvMsg_LeavesTheMessageOfAFailedCall as plain gRPC does, whichever attempt decides.
func TestRecvMsg_LeavesTheMessageOfAFailedCall(t *testing.T) {
	hangs := testserver.Plan{Ending: testserver.Hang}
	for name, plans := range map[string][]testserver.Plan{
		"the primary fails":      {{Delay: 5 * ms, Code: codes.NotFound}},
		"both fail":              {{Delay: 30 * ms, Code: codes.Unavailable}, {Delay: 5 * ms, Code: codes.Unavailable}},
		"the primary is empty":   {{Delay: 50 * ms, Empty: true}, hangs},
		"the hedge is empty":     {hangs, {Delay: 5 * ms, Empty: true}},
		"they meet: hedge empty": {{Delay: 20 * ms, PayloadBytes: 100, Header: metadata.Pairs("a", "b")}, {Delay: 10 * ms, Empty: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, was := range []*testpb.Reply{{}, {Id: 99, Payload: []byte("the caller's")}} {
				synctest.Test(t, func(t *testing.T) {
					cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...)})
					conn := cluster.ClientT(t, hedging(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))))
					testserver.ConnectT(t, conn)
					st, err := testpb.NewTestServiceClient(conn).ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 1})
					if err != nil {
						t.Fatal(err)
					}
					reply := proto.Clone(was).(*testpb.Reply)
					if err := st.RecvMsg(reply); err == nil {
						if name[:4] != "they" { // there the primary may win
							t.Errorf("received %v", reply)
						}
						_ = st.RecvMsg(reply)
					} else if !proto.Equal(reply, was) {
						t.Errorf("%v, and the message is %v, want %v", err, reply, was)
					}
				})
			}
		})
	}
}
