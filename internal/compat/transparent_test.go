package compat_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// refuser is a server in raw HTTP/2 that refuses the first stream of each kind of attempt, by which gRPC knows that
// nobody has looked at it and transparently tries again. It never answers a primary, and a hedge when its request is there: of a
// stream that ends before its request was sent, plain gRPC too may lose the message.
type refuser struct {
	mu       sync.Mutex
	requests []string // grpc-previous-rpc-attempts of each stream, in order
}

func (r *refuser) serve(conn net.Conn) error {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	hedges := map[uint32]bool{} // streams that are to be answered
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return nil // the client is gone
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = framer.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			number, first := r.note(f)
			if hedges[f.StreamID] = number == "1" && !first; first {
				err = framer.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
			}
		case *http2.DataFrame:
			if f.StreamEnded() && hedges[f.StreamID] {
				err = answer(framer, f.StreamID)
			}
		}
		if err != nil {
			return err
		}
	}
}

// note returns the number of an attempt, and whether it is the first stream with that number.
func (r *refuser) note(f *http2.MetaHeadersFrame) (number string, first bool) {
	number = "0"
	for _, field := range f.RegularFields() {
		if field.Name == "grpc-previous-rpc-attempts" {
			number = field.Value
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !slices.Contains(r.requests, number)
	r.requests = append(r.requests, number)
	return number, first
}

func answer(framer *http2.Framer, stream uint32) error {
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true,
		BlockFragment: headerBlock(":status", "200", "content-type", "application/grpc", "attempt", "1")}); err != nil {
		return err
	}
	message, err := encoding.GetCodecV2(proto.Name).Marshal(&testpb.Reply{Id: 7, Attempt: 1})
	if err != nil {
		return err
	}
	data := message.Materialize()
	if err := framer.WriteData(stream, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)); err != nil {
		return err
	}
	return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true,
		BlockFragment: headerBlock("grpc-status", "0", "attempt", "1")})
}

func headerBlock(namesAndValues ...string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(namesAndValues); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]}) // to memory
	}
	return block.Bytes()
}

// TestTransparentRetry has gRPC transparently retry the primary and the hedge, each under its own number.
func TestTransparentRetry(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := &refuser{}
			listener := testserver.NewListener()
			var servers sync.WaitGroup
			servers.Go(func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					servers.Go(func() {
						if err := r.serve(conn); err != nil {
							t.Log(err)
						}
					})
				}
			})
			defer servers.Wait()
			defer listener.Close()
			s := hedgetest.All(t)
			conn, err := grpc.NewClient("passthrough:///refuser",
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.Dial(ctx) }),
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithUnaryInterceptor(interceptor.Unary(s)), grpc.WithStreamInterceptor(stream.Interceptor(s)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			testserver.ConnectT(t, conn)

			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			w := &world{scheduler: s, client: testpb.NewTestServiceClient(conn)}
			o := call(w, ctx, &testpb.Request{Id: 7, Messages: 1}, hedge.After(20*ms))
			if o.err != nil || o.reply.Attempt != 1 || o.header.Get("attempt")[0] != "1" || o.trailer.Get("attempt")[0] != "1" || len(o.finished) != 1 {
				t.Errorf("%+v", o)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if got := len(r.requests); got != 4 || r.requests[1] != "0" || r.requests[3] != "1" {
				t.Errorf("the server saw %q", r.requests)
			}
			if got := s.Stats(); got.Hedges != 1 || got.HedgeWins != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}
