package examples_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
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
		return c.Unary(ctx, r, append(to, grpc.UseCompressor(grpcgzip.Name))...)
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
				end, code := fmt.Sprint(status.Convert(err)), r.Code
				if tc.timeout > 0 {
					end = status.Code(err).String()
					// The backend's own timer and the caller's reset of the stream end the handler, whichever is first.
					if code == codes.Canceled {
						code = codes.DeadlineExceeded
					}
				}
				text := fmt.Sprintf("%v %s %q %q %q %q %v", value, end, header["own-text"], header["own-bin"],
					trailer["own-text"], trailer["own-bin"], code)
				got = append(got, text)
			}
			if got[1] != got[0] {
				t.Errorf("through the proxy: %.300s\ndirectly:          %.300s", got[1], got[0])
			}
		})
	}
}

// TestProxy_HTTP makes requests to a server directly and through the proxy.
func TestProxy_HTTP(t *testing.T) {
	ended := make(chan bool, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/trailer", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		fmt.Fprint(w, r.Method, r.URL.RawQuery)
		w.Header().Set("Sum", "17")
	})
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, string(body), err)
	})
	mux.HandleFunc("/compressed", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "text")
		_ = z.Close()
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done() // until the client has gone
		ended <- true
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		_ = rw.Flush()
		line, err := rw.ReadString('\n')
		fmt.Fprint(rw, line, err)
		_ = rw.Flush()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	_, proxy := startProxy(t, "localhost:1", server.URL)

	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	for _, tc := range []struct {
		method, path, body, upgrade string
		bytes                       int // of the response that are read; 0: all
	}{
		{method: "GET", path: "/trailer?q=1&r=%2f"},
		{method: "HEAD", path: "/compressed"},
		{method: "POST", path: "/read", body: "question"},
		{method: "PUT", path: "/read", body: "change"},
		{method: "GET", path: "/compressed"},
		{method: "GET", path: "/none"},
		{method: "GET", path: "/a/../read"}, // the mux redirects
		{method: "GET", path: "/events", bytes: 9},
		{method: "GET", path: "/upgrade", upgrade: "echo"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			var results []string
			for _, to := range []string{server.URL, "http://" + proxy} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, tc.method, to+tc.path, strings.NewReader(tc.body))
				if err != nil {
					t.Fatal(err)
				}
				if tc.upgrade != "" {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", tc.upgrade)
				}
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if stream, ok := res.Body.(io.Writer); ok && tc.upgrade != "" {
					fmt.Fprintln(stream, "hello")
				}
				body := io.Reader(res.Body)
				if tc.bytes > 0 {
					body = io.LimitReader(body, int64(tc.bytes))
				}
				read, err := io.ReadAll(body)
				_ = res.Body.Close()
				if tc.bytes > 0 {
					<-ended
				}
				res.Header.Del("Date")
				results = append(results, fmt.Sprintf("%s %q %d %v %v %v", res.Status, read, res.ContentLength, err,
					res.Header, res.Trailer))
			}
			if results[0] != results[1] {
				t.Errorf("through the proxy: %s\ndirectly:          %s", results[1], results[0])
			}
		})
	}
}
