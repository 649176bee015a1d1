package examples_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
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
		"-methods", testpb.TestService_Unary_FullMethodName+","+testpb.TestService_ServerStream_FullMethodName)
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
	const fails, hangs = 1, 2 // ids of requests
	cluster := testserver.StartT(t, testserver.Config{Script: func(a testserver.Attempt) testserver.Plan {
		md := metadata.MD{"own-text": a.Metadata["own-text"], "own-bin": a.Metadata["own-bin"]}
		p := testserver.Plan{Header: md, Trailer: md, HeaderAtOnce: a.ID == hangs}
		switch a.ID {
		case fails:
			p.Code, p.Message, p.After = codes.DataLoss, "lost", 2
		case hangs:
			p.Ending = testserver.Hang
		}
		return p
	}})
	proxy, _ := startProxy(t, cluster.Address(0), "")
	direct := cluster.ClientT(t)
	through := cluster.ClientT(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", proxy)
	}))
	type (
		client  = testpb.TestServiceClient
		request = *testpb.Request
		call    func(ctx context.Context, c client, r request, to ...grpc.CallOption) (any, error)
	)
	unary := func(ctx context.Context, c client, r request, to ...grpc.CallOption) (any, error) {
		return c.Unary(ctx, r, append(to, grpc.UseCompressor(gzip.Name))...)
	}
	stream := func(ctx context.Context, c client, r request, to ...grpc.CallOption) (any, error) {
		st, err := c.ServerStream(ctx, r, to...)
		var all []uint32
		for err == nil {
			var reply *testpb.Reply
			reply, err = st.Recv()
			all = append(all, reply.GetSequence())
		}
		return all, err
	}
	upload := func(ctx context.Context, c client, r request, to ...grpc.CallOption) (any, error) {
		st, err := c.ClientStream(ctx, to...)
		if err == nil {
			err = errors.Join(st.Send(r), st.Send(r))
		}
		if err != nil {
			return nil, err
		}
		return st.CloseAndRecv()
	}
	talk := func(ctx context.Context, c client, r request, to ...grpc.CallOption) (any, error) {
		st, err := c.BidiStream(ctx, to...)
		var all []uint32
		for n := 0; err == nil && n < 3; n++ {
			var reply *testpb.Reply
			if err = st.Send(r); err == nil {
				reply, err = st.Recv()
			}
			all = append(all, reply.GetSequence())
		}
		if err == nil {
			_ = st.CloseSend()
			_, err = st.Recv()
		}
		return all, err
	}
	for _, tc := range []struct {
		name    string
		call    call
		request request
		timeout time.Duration // of the call; 0: a minute
	}{
		{name: "unary", call: unary, request: &testpb.Request{ReplyBytes: 3 << 20}},
		{name: "a unary error", call: unary, request: &testpb.Request{Id: fails}},
		{name: "a server stream", call: stream, request: &testpb.Request{Messages: 3}},
		{name: "a server stream that fails", call: stream, request: &testpb.Request{Id: fails, Messages: 3}},
		{name: "a client stream", call: upload, request: &testpb.Request{}},
		{name: "a conversation", call: talk, request: &testpb.Request{}},
		{name: "a conversation that fails", call: talk, request: &testpb.Request{Id: fails}},
		{name: "a client that goes", call: talk, request: &testpb.Request{Id: hangs}, timeout: 500 * time.Millisecond},
		{name: "a client that goes from a method that may run twice", call: unary, request: &testpb.Request{Id: hangs},
			timeout: 500 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, conn := range []*grpc.ClientConn{direct, through} {
				cluster.Reset()
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Minute))
				defer cancel()
				ctx = metadata.AppendToOutgoingContext(ctx, "own-text", "a", "own-text", "b", "own-bin", "\x00\xff")
				var header, trailer metadata.MD
				to := []grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer)}
				value, err := tc.call(ctx, testpb.NewTestServiceClient(conn), tc.request, to...)
				cluster.WaitIdleT(t) // also if the client has gone
				r := cluster.Records()[0]
				end := fmt.Sprint(status.Convert(err))
				if tc.timeout > 0 { // the deadline passes at both ends, and either may say so first
					end = status.Code(err).String()
				}
				text := fmt.Sprintf("%v %s %q %q %q %q %v", value, end, header["own-text"], header["own-bin"],
					trailer["own-text"], trailer["own-bin"], r.Code)
				got = append(got, text)
			}
			if got[1] != got[0] {
				t.Errorf("through the proxy: %.300s\ndirectly:          %.300s", got[1], got[0])
			}
		})
	}
}
