package shed_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

// TestCancelledWhileWaiting sends calls that are canceled at once to a server with one processor,
// on which a call waits while the server reads. Without a Bound some reach their handlers: gRPC
// chooses at random between the message and the end. With a Bound none does.
func TestCancelledWhileWaiting(t *testing.T) {
	const variable, calls = "SHED_CANCELLED", 200
	if kind := os.Getenv(variable); kind != "" {
		method, how, _ := strings.Cut(kind, " ")
		fmt.Printf("reached %d", reached(t, method, how == "shed", calls))
		return
	}
	for _, method := range []string{"Unary", "ServerStream"} {
		got := map[string]int{}
		for _, how := range []string{"plain", "shed"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCancelledWhileWaiting$")
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1", variable+"="+method+" "+how)
			out, err := cmd.Output()
			n := 0
			if _, scan := fmt.Sscanf(string(out), "reached %d", &n); err != nil || scan != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got[how] = n
		}
		t.Logf("%s: %v of %d calls reached their handlers", method, got, calls)
		// A stream may begin before its request has arrived, and be canceled while it waits for
		// that.
		if most := map[string]int{"ServerStream": got["plain"] / 8}[method]; got["shed"] > most || got["plain"] == 0 {
			t.Errorf("%s: %v of %d calls reached their handlers", method, got, calls)
		}
	}
}

// reached returns how many handlers begin when their calls have been canceled.
func reached(t *testing.T, method string, sheds bool, calls int) int64 {
	s := &counting{}
	var opts []grpc.ServerOption
	if sheds {
		b := newBound(t, 0)
		opts = append(opts, grpc.UnaryInterceptor(b.Unary), grpc.StreamInterceptor(b.Stream))
	}
	address := serve(t, s, opts...)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var frames bytes.Buffer
	frames.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&frames, nil)
	_ = f.WriteSettings()
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	for n := range calls {
		block.Reset()
		for _, h := range []string{":method POST", ":scheme http", ":path /hedgetest.TestService/" + method,
			":authority test", "content-type application/grpc", "te trailers"} {
			name, value, _ := strings.Cut(h, " ")
			_ = headers.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		id := uint32(2*n + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = f.WriteData(id, true, []byte{0, 0, 0, 0, 0})
		_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	_ = f.WritePing(false, [8]byte{1})
	if _, err := conn.Write(frames.Bytes()); err != nil {
		t.Fatal(err)
	}
	for answers := http2.NewFramer(nil, conn); ; { // until the server has read all frames
		frame, err := answers.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := frame.(*http2.PingFrame); ok && p.IsAck() && p.Data == [8]byte{1} {
			break
		}
	}
	// A call of its own is answered after all of them have been dispatched.
	client := dial(t, address)
	for range 20 {
		if _, err := client.UnaryIdempotent(context.Background(), &testpb.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	return s.handlers.Load()
}

// serve starts a server on a socket, which ends with the test.
func serve(tb testing.TB, s testpb.TestServiceServer, opts ...grpc.ServerOption) (address string) {
	server := grpc.NewServer(opts...)
	testpb.RegisterTestServiceServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(server.Stop)
	return listener.Addr().String()
}

func dial(tb testing.TB, address string) testpb.TestServiceClient {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return testpb.NewTestServiceClient(conn)
}

// counting counts the handlers that begin when their calls have been canceled.
type counting struct {
	testpb.UnimplementedTestServiceServer
	handlers atomic.Int64
}

func (c *counting) begins(ctx context.Context) {
	if ctx.Err() != nil {
		c.handlers.Add(1)
	}
}

func (c *counting) Unary(ctx context.Context, _ *testpb.Request) (*testpb.Reply, error) {
	c.begins(ctx)
	return &testpb.Reply{}, nil
}

func (c *counting) ServerStream(_ *testpb.Request, st grpc.ServerStreamingServer[testpb.Reply]) error {
	c.begins(st.Context())
	return nil
}

func (c *counting) UnaryIdempotent(context.Context, *testpb.Request) (*testpb.Reply, error) {
	return &testpb.Reply{}, nil
}

// BenchmarkServe measures the cost of calls over one connection, for client and server together: of a
// call that is served, and of a hedge that is turned away.
func BenchmarkServe(b *testing.B) {
	bound, err := shed.New(shed.WithMaxHedges(0))
	if err != nil {
		b.Fatal(err)
	}
	client := dial(b, serve(b, &counting{}, grpc.UnaryInterceptor(bound.Unary)))
	for name, ctx := range map[string]context.Context{
		"empty call": context.Background(),
		"turned away": metadata.AppendToOutgoingContext(context.Background(),
			"grpc-previous-rpc-attempts", "1", "hedge-primary-in-flight", "1"),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = client.Unary(ctx, &testpb.Request{})
			}
		})
	}
}
