package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// jsonCodec sends any Go value as JSON.
type jsonCodec struct{ name string }

func init() { encoding.RegisterCodec(jsonCodec{"json"}) }

func (j jsonCodec) Name() string                     { return j.name }
func (j jsonCodec) String() string                   { return j.name }
func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// countedCodec is a jsonCodec that holds a reference to its buffers while it decodes.
type countedCodec struct{ jsonCodec }

func (countedCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := json.Marshal(v)
	buffer := mem.Copy(data, mem.DefaultBufferPool())
	clear(data)
	return mem.BufferSlice{buffer}, err
}

func (countedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	defer data.Free()
	return json.NewDecoder(data.Reader()).Decode(v)
}

// byID is a caller's view of a reply.
type byID struct {
	ID   int
	Note string
}

// retrying opens a failed stream again, returns the messages of the second one, and passes each
// message to saw.
type retrying struct {
	grpc.ClientStream
	again func() (grpc.ClientStream, error)
	saw   func(m any)
}

func (r *retrying) RecvMsg(m any) error {
	err := r.ClientStream.RecvMsg(m)
	if status.Code(err) == codes.Aborted {
		if r.ClientStream, err = r.again(); err == nil {
			err = r.ClientStream.RecvMsg(m)
		}
	}
	if err == nil {
		r.saw(m)
	}
	return err
}

// inner is the interceptor of such streams.
func inner(saw func(m any)) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
		opts ...grpc.CallOption) (grpc.ClientStream, error) {
		st, err := streamer(ctx, desc, cc, method, opts...)
		return &retrying{st, func() (grpc.ClientStream, error) {
			st, err := streamer(metadata.AppendToOutgoingContext(ctx, "retry", "1"), desc, cc, method, opts...)
			if err == nil {
				err = st.SendMsg(&testpb.Request{Id: 7})
			}
			return st, err
		}, saw}, err
	}
}

// TestRule01_MessagesOfUnknownTypes receives streams beside plain gRPC, into messages of unknown
// types, by every way in which a call chooses its codec. The caller does not call CloseSend. Each
// stream begins with a slow primary, or with one that fails without headers and is retried.
func TestRule01_MessagesOfUnknownTypes(t *testing.T) {
	for name, codec := range map[string][]grpc.CallOption{
		"default":            nil,
		"ForceCodec":         {grpc.ForceCodec(jsonCodec{"json"})},
		"ForceCodecV2":       {grpc.ForceCodecV2(countedCodec{jsonCodec{"JSON"}})},
		"CallCustomCodec":    {grpc.CallContentSubtype("json"), grpc.CustomCodecCallOption{Codec: jsonCodec{"own"}}},
		"CallContentSubtype": {grpc.CallContentSubtype("json")},
		"none of that name":  {grpc.CallContentSubtype("nobody's")},
		"pointer":            {&grpc.ForceCodecCallOption{Codec: jsonCodec{"json"}}},
		"pointer to subtype": {&grpc.ContentSubtypeCallOption{ContentSubtype: "json"}},
		"embedded":           {struct{ grpc.CallOption }{grpc.CallContentSubtype("json")}}, // not hedged
	} {
		for _, tc := range []struct {
			name            string
			header, retries bool
			option          hedge.Option
			wins            int64 // of hedges, at least
		}{
			{name: "RecvMsg", wins: 2}, // the messages of protobuf
			{name: "RecvMsg, retried", retries: true, wins: 2},
			{name: "Header", header: true, wins: 4},
			{name: "Header, retried", header: true, retries: true, wins: 4},
			{name: "WaitForMessage", header: true, option: hedge.WithWaitForMessage("/*/*"), wins: 4},
			{name: "WaitForMessage, retried", header: true, retries: true, option: hedge.WithWaitForMessage("/*/*"),
				wins: 4},
		} {
			hedgetest.Run(t, name+"/"+tc.name, func(t *testing.T) {
				run := func(s *hedge.Scheduler) (got []string) {
					var types sync.Map
					cluster := testserver.StartT(t, testserver.Config{InMemory: true,
						Script: func(a testserver.Attempt) testserver.Plan {
							types.Store(a.Metadata.Get("content-type")[0], true)
							p := testserver.Plan{Messages: 2, HeaderAtOnce: tc.option != nil}
							switch {
							case tc.retries && a.Metadata.Get("retry") == nil:
								return testserver.Plan{Code: codes.Aborted}
							case a.Number == 0:
								p.Delay = 100 * ms
							}
							return p
						}})
					conn := cluster.ClientT(t, hedging(s), grpc.WithChainStreamInterceptor(inner(func(any) {})))
					testserver.ConnectT(t, conn)
					for _, into := range []func() any{
						func() any { return new(testpb.Reply) }, func() any { return new(any) },
						func() any { return &byID{Note: "the caller's"} },
						func() any { return dynamicpb.NewMessage((&testpb.Reply{}).ProtoReflect().Descriptor()) },
					} {
						st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method, codec...)
						if err != nil {
							got = append(got, err.Error())
							continue
						}
						if err := st.SendMsg(&testpb.Request{Id: 7}); err != nil {
							t.Fatal(err)
						}
						if tc.header {
							_, err := st.Header()
							got = append(got, fmt.Sprint(err))
						}
						for {
							m := into()
							err := st.RecvMsg(m)
							data, _ := json.Marshal(m)
							if d, ok := m.(*dynamicpb.Message); ok {
								data = fmt.Append(nil, d.Get(d.Descriptor().Fields().ByName("id")))
							}
							text := strings.NewReplacer(`"attempt":1,`, "", `,"attempt":1`, "").Replace(string(data))
							if got = append(got, text, fmt.Sprint(status.Code(err))); err != nil {
								break
							}
						}
					}
					types.Range(func(k, _ any) bool {
						got = append(got, k.(string))
						return true
					})
					return got
				}
				want := run(nil)
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), tc.option)
				if got := run(s); !slices.Equal(got, want) {
					t.Errorf("received\n%q, by plain gRPC\n%q", got, want)
				}
				if got := s.Stats(); got.HedgeWins < tc.wins && codec != nil && len(want) > 7 && got.UnknownOption == 0 {
					t.Errorf("%d hedges have won, want %d", got.HedgeWins, tc.wins)
				}
			})
		}
	}
}

// TestMessages_InterceptorsInside lets an interceptor inside change the first message, which a
// hedge receives. It knows the message by its type, unless a call option chooses a codec and Header
// waits for a message of whatever type.
func TestMessages_InterceptorsInside(t *testing.T) {
	own := []grpc.CallOption{grpc.CallContentSubtype("json")}
	for _, tc := range []struct {
		name   string
		codec  []grpc.CallOption
		header bool
		want   string
	}{
		{name: "default", want: "100 1 <nil>"}, {name: "default, header", header: true, want: "100 1 <nil>"},
		{name: "JSON", codec: own, want: "100 1 <nil>"}, {name: "JSON, header", codec: own, header: true, want: "7 0 <nil>"},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: testserver.ByNumber(testserver.Plan{Delay: 100 * ms, HeaderAtOnce: true}, testserver.Plan{})})
			seen := 0
			client := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithWaitForMessage("/*/*")),
				grpc.WithChainStreamInterceptor(inner(func(m any) {
					if m, ok := m.(*testpb.Reply); ok {
						seen++
						m.Id = 100
					}
				})))
			st := open(t.Context(), t, client, &testpb.Request{Id: 7, Messages: 1}, tc.codec...)
			if tc.header {
				_, _ = st.Header()
			}
			m, err := st.Recv()
			if got := fmt.Sprint(m.GetId(), seen, err); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
