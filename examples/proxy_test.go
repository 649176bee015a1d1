package examples_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	gzipped "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/encoding/proto"
	pb "google.golang.org/grpc/examples/features/proto/echo"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// startProxy runs examples/proxy in front of a gRPC server and an HTTP server, and returns its two
// addresses. Unary calls and server streams may run twice, as may requests to /read.
func startProxy(t *testing.T, grpcTo, httpTo string) (onGRPC, onHTTP string) {
	binary := filepath.Join(t.TempDir(), "proxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./proxy")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-grpc", grpcTo, "-http", httpTo, "-requests", "POST /read",
		"-methods", pb.Echo_UnaryEcho_FullMethodName+","+pb.Echo_ServerStreamingEcho_FullMethodName)
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // its context has ended
	line, err := bufio.NewReader(output).ReadString('\n')
	addresses := regexp.MustCompile(`^gRPC on (\S+), HTTP on (\S+), debug page on`).FindStringSubmatch(line)
	if addresses == nil {
		t.Fatalf("the proxy printed %q, %v; want its addresses", line, err)
	}
	return addresses[1], addresses[2]
}

// TestProxy_GRPC makes calls of a server directly and through the proxy: the two must not differ,
// whether a method may run twice or not.
func TestProxy_GRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	backend := &echo{ended: make(chan bool, 1)}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(large), grpc.UnknownServiceHandler(backend.unknown),
		grpc.ForceServerCodecV2(textOr{}))
	pb.RegisterEchoServer(server, backend)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	proxy, _ := startProxy(t, listener.Addr().String(), "")

	connect := func(to string) *grpc.ClientConn {
		conn, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(large)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	direct, through := connect(listener.Addr().String()), connect(proxy)
	for name, call := range map[string]func(context.Context, *grpc.ClientConn) string{
		"unary":                 unary("hello"),
		"an empty message":      unary(""),
		"a large message":       unary(strings.Repeat("x", 6<<20)),
		"compressed":            unary("hello", grpc.UseCompressor(gzipped.Name)),
		"an error with details": unary("fail"),
		"an error at once":      unary("refuse"),
		"a server stream": func(ctx context.Context, conn *grpc.ClientConn) string {
			st, err := pb.NewEchoClient(conn).ServerStreamingEcho(ctx, &pb.EchoRequest{Message: "a b c"})
			return received(st, err)
		},
		"a server stream that fails": func(ctx context.Context, conn *grpc.ClientConn) string {
			st, err := pb.NewEchoClient(conn).ServerStreamingEcho(ctx, &pb.EchoRequest{Message: "a b fail"})
			return received(st, err)
		},
		"a client stream": func(ctx context.Context, conn *grpc.ClientConn) string {
			st, err := pb.NewEchoClient(conn).ClientStreamingEcho(ctx)
			for _, word := range []string{"a", "b", "c"} {
				err = errors.Join(err, st.Send(&pb.EchoRequest{Message: word}))
			}
			reply, errEnd := st.CloseAndRecv()
			return fmt.Sprint(reply.GetMessage(), err, errEnd, own(st.Trailer()))
		},
		"a conversation": func(ctx context.Context, conn *grpc.ClientConn) string {
			st, err := pb.NewEchoClient(conn).BidirectionalStreamingEcho(ctx)
			if err != nil {
				return err.Error()
			}
			header, err := st.Header() // before any message
			said := fmt.Sprint(own(header), err)
			for _, word := range []string{"a", "b", "c"} {
				err := st.Send(&pb.EchoRequest{Message: word})
				reply, errEnd := st.Recv()
				said += fmt.Sprint(reply.GetMessage(), err, errEnd)
			}
			err = st.CloseSend()
			return fmt.Sprint(said, err, received(st, nil))
		},
		"a server that ends first": func(ctx context.Context, conn *grpc.ClientConn) string {
			st, err := pb.NewEchoClient(conn).BidirectionalStreamingEcho(ctx)
			err = errors.Join(err, st.Send(&pb.EchoRequest{Message: "fail"}))
			return fmt.Sprint(err, received(st, nil))
		},
		"another codec": func(ctx context.Context, conn *grpc.ClientConn) string {
			reply := ""
			err := conn.Invoke(ctx, "/text.Service/Method", "\xff\xff", &reply, grpc.ForceCodecV2(textOr{}))
			return fmt.Sprintf("%q %v", reply, err)
		},
		"an unknown method": func(ctx context.Context, conn *grpc.ClientConn) string {
			return fmt.Sprint(conn.Invoke(ctx, "/some.Service/Unknown", &pb.EchoRequest{}, &pb.EchoResponse{}))
		},
		"a client that goes": func(ctx context.Context, conn *grpc.ClientConn) string {
			ctx, cancel := context.WithCancel(ctx)
			st, err := pb.NewEchoClient(conn).BidirectionalStreamingEcho(ctx)
			if err == nil {
				_, err = st.Header()
			}
			cancel()
			return fmt.Sprint(err, <-backend.ended)
		},
		"a client that goes from a method that may run twice": func(ctx context.Context, conn *grpc.ClientConn) string {
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "then", "wait"))
			st, err := pb.NewEchoClient(conn).ServerStreamingEcho(ctx, &pb.EchoRequest{Message: "a"})
			if err == nil {
				_, err = st.Recv()
			}
			cancel()
			return fmt.Sprint(err, <-backend.ended)
		},
		"a deadline": func(ctx context.Context, conn *grpc.ClientConn) string {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			st, err := pb.NewEchoClient(conn).BidirectionalStreamingEcho(ctx)
			if err == nil {
				_, err = st.Header()
			}
			limited := true
			if err == nil { // otherwise the deadline may have come before the call reached the backend
				_, err = st.Recv()
				limited = <-backend.ended
			}
			return fmt.Sprint(status.Code(err), limited)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ctx = metadata.AppendToOutgoingContext(ctx, "own-text", "a", "own-text", "b", "own-bin", "\x00\xff")
			want, got := call(ctx, direct), call(ctx, through)
			if got != want {
				t.Errorf("through the proxy: %.300q\ndirectly:          %.300q", got, want)
			}
		})
	}
}

const large = 16 << 20

// own returns the metadata of the test.
func own(md metadata.MD) string {
	return fmt.Sprintf("%q %q", md["own-text"], md["own-bin"])
}

func unary(message string, opts ...grpc.CallOption) func(context.Context, *grpc.ClientConn) string {
	return func(ctx context.Context, conn *grpc.ClientConn) string {
		var header, trailer metadata.MD
		reply, err := pb.NewEchoClient(conn).UnaryEcho(ctx, &pb.EchoRequest{Message: message},
			append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
		return fmt.Sprint(reply.GetMessage(), status.Convert(err).Proto(), own(header), own(trailer))
	}
}

func received(st grpc.ServerStreamingClient[pb.EchoResponse], err error) string {
	var all []string
	for err == nil {
		var reply *pb.EchoResponse
		if reply, err = st.Recv(); err == nil {
			all = append(all, reply.GetMessage())
		}
	}
	header, _ := st.Header()
	return fmt.Sprint(all, status.Convert(err).Proto(), own(header), own(st.Trailer()))
}

// echo answers with what it is sent, and returns the metadata of the test in header and trailer.
type echo struct {
	pb.UnimplementedEchoServer
	ended chan bool // calls that the client ended, and whether they had a deadline
}

func (e *echo) note(ctx context.Context) {
	_, limited := ctx.Deadline()
	e.ended <- limited
}

func (e *echo) UnaryEcho(ctx context.Context, in *pb.EchoRequest) (*pb.EchoResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if in.GetMessage() != "refuse" {
		if err := errors.Join(grpc.SetHeader(ctx, md), grpc.SetTrailer(ctx, md)); err != nil {
			return nil, err
		}
	}
	return &pb.EchoResponse{Message: in.GetMessage()}, failure(in)
}

func failure(in *pb.EchoRequest) error {
	if in.GetMessage() != "fail" && in.GetMessage() != "refuse" {
		return nil
	}
	st, err := status.New(codes.DataLoss, "lost").WithDetails(durationpb.New(time.Second))
	return errors.Join(err, st.Err())
}

func (e *echo) ServerStreamingEcho(in *pb.EchoRequest, st pb.Echo_ServerStreamingEchoServer) error {
	md, _ := metadata.FromIncomingContext(st.Context())
	st.SetTrailer(md)
	err := st.SetHeader(md)
	for word := range strings.FieldsSeq(in.GetMessage()) {
		if err := failure(&pb.EchoRequest{Message: word}); err != nil {
			return err
		}
		err = errors.Join(err, st.Send(&pb.EchoResponse{Message: word}))
	}
	if len(md["then"]) > 0 {
		<-st.Context().Done()
		e.note(st.Context())
	}
	return err
}

func (e *echo) ClientStreamingEcho(st pb.Echo_ClientStreamingEchoServer) error {
	md, _ := metadata.FromIncomingContext(st.Context())
	st.SetTrailer(md)
	for all := ""; ; {
		in, err := st.Recv()
		if err == io.EOF {
			return st.SendAndClose(&pb.EchoResponse{Message: all})
		} else if err != nil {
			return err
		}
		all += in.GetMessage()
	}
}

func (e *echo) BidirectionalStreamingEcho(st pb.Echo_BidirectionalStreamingEchoServer) error {
	md, _ := metadata.FromIncomingContext(st.Context())
	st.SetTrailer(md)
	err := st.SendHeader(md)
	for err == nil {
		var in *pb.EchoRequest
		if in, err = st.Recv(); err == nil {
			err = errors.Join(failure(in), st.Send(&pb.EchoResponse{Message: in.GetMessage()}))
		}
	}
	if st.Context().Err() != nil {
		e.note(st.Context())
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// unknown answers text with text.
func (e *echo) unknown(_ any, st grpc.ServerStream) error {
	in, method := "", ""
	if method, _ = grpc.Method(st.Context()); method != "/text.Service/Method" {
		return status.Error(codes.Unimplemented, "the backend has no method "+method)
	}
	md, _ := metadata.FromIncomingContext(st.Context())
	return errors.Join(st.RecvMsg(&in), st.SendMsg(fmt.Sprint(in, md["content-type"])))
}

// textOr is the codec of strings, and gRPC's own of messages.
type textOr struct{}

func (textOr) Name() string { return "text" }

func (textOr) Marshal(v any) (mem.BufferSlice, error) {
	if text, ok := v.(string); ok {
		return mem.BufferSlice{mem.SliceBuffer(text)}, nil
	}
	return encoding.GetCodecV2(proto.Name).Marshal(v)
}

func (textOr) Unmarshal(data mem.BufferSlice, v any) error {
	if text, ok := v.(*string); ok {
		*text = string(data.Materialize())
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}
