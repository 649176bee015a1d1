package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	testpb "github.com/grpchedge/hedge/proto"
)

// protocols is HTTP/1.1 or HTTP/2, without TLS.
func protocols(http1, http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(http2)
	return p
}

// transportOf returns a transport that follows a policy and connects to a listener, and its
// scheduler.
func transportOf(p policy.Policy, options []hedge.Option, listener net.Listener) (http.RoundTripper,
	*hedge.Scheduler, error) {
	base := &http.Transport{MaxIdleConnsPerHost: 1000, Protocols: protocols(!p.HTTP2, p.HTTP2)}
	if l, ok := listener.(pipes); ok {
		base.DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			l <- server
			return client, nil
		}
	}
	if p.Transport == nil {
		return base, nil, nil
	}
	return p.Transport(options, base)
}

// listen returns the listener of a gateway: a socket, or memory in virtual time.
func listen(c workload.Clock) (net.Listener, error) {
	if c == workload.VirtualClock {
		return make(pipes), nil
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// pipes is a listener in memory: it accepts the connections sent to it. HTTP servers need the deadlines of
// its connections.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// gateway serves HTTP requests by calls of the backends. HTTP requests do not carry their attempt's
// number, so the gateway counts.
type gateway struct {
	backends testpb.TestServiceClient
	attempts *sync.Map // id → *atomic.Int64; nil: not counted
}

// NewGateway returns a handler of the requests of [NewHTTPClient]: it answers them by calls of the
// backends, each as a first attempt.
func NewGateway(backends testpb.TestServiceClient) http.Handler { return &gateway{backends: backends} }

// NewHTTPClient returns a client that makes calls as HTTP requests to a gateway.
func NewHTTPClient(url string, rt http.RoundTripper) testpb.TestServiceClient {
	return &httpClient{http: &http.Client{Transport: rt}, url: url}
}

// gatewayTo starts a gateway and returns a client that makes calls through it, as HTTP requests.
func gatewayTo(backends testpb.TestServiceClient, listener net.Listener,
	rt http.RoundTripper) (testpb.TestServiceClient, func()) {
	server := &http.Server{Handler: &gateway{backends, new(sync.Map)}, Protocols: protocols(true, true)}
	go server.Serve(listener)
	client := &httpClient{http: &http.Client{Transport: rt}, url: "http://" + listener.Addr().String()}
	stop := func() {
		client.http.CloseIdleConnections()
		_ = server.Close()
	}
	return client, stop
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := &testpb.Request{}
	encoded, err := base64.URLEncoding.DecodeString(r.URL.Query().Get("request"))
	if err == nil {
		err = proto.Unmarshal(encoded, req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	if g.attempts != nil {
		count, _ := g.attempts.LoadOrStore(req.GetId(), new(atomic.Int64))
		if n := count.(*atomic.Int64).Add(1) - 1; n > 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", strconv.FormatInt(n, 10))
		}
	}
	if req.GetMessages() > 0 {
		err = g.stream(ctx, w, req)
	} else {
		err = g.unary(ctx, w, req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func (g *gateway) unary(ctx context.Context, w http.ResponseWriter, req *testpb.Request) error {
	reply, err := g.backends.Unary(ctx, req)
	if err != nil {
		return err
	}
	encoded, err := proto.Marshal(reply)
	w.Write(encoded)
	return err
}

func (g *gateway) stream(ctx context.Context, w http.ResponseWriter, req *testpb.Request) error {
	st, err := g.backends.ServerStream(ctx, req)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for flush := w.(http.Flusher).Flush; ; {
		flush()
		reply, err := st.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			panic(http.ErrAbortHandler)
		}
		encoded, err := proto.Marshal(reply)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "data: %s\n\n", base64.StdEncoding.EncodeToString(encoded))
	}
}

// httpClient makes calls through a gateway.
type httpClient struct {
	testpb.TestServiceClient // nil: other methods are not called
	http                     *http.Client
	url                      string
}

func (c *httpClient) get(ctx context.Context, req *testpb.Request) (*http.Response, error) {
	encoded, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	query := url.Values{"request": {base64.URLEncoding.EncodeToString(encoded)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		response.Body.Close()
		err = fmt.Errorf("status %s", response.Status)
	}
	return response, err
}

func (c *httpClient) Unary(ctx context.Context, req *testpb.Request, _ ...grpc.CallOption) (*testpb.Reply, error) {
	response, err := c.get(ctx, req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	encoded, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	reply := &testpb.Reply{}
	return reply, proto.Unmarshal(encoded, reply)
}

func (c *httpClient) ServerStream(ctx context.Context, req *testpb.Request,
	_ ...grpc.CallOption) (grpc.ServerStreamingClient[testpb.Reply], error) {
	response, err := c.get(ctx, req)
	if err != nil {
		return nil, err
	}
	return &events{body: response.Body, lines: bufio.NewReader(response.Body)}, nil
}

// events is a stream of server-sent events, each of them a reply.
type events struct {
	grpc.ClientStream
	body  io.Closer
	lines *bufio.Reader
}

func (e *events) Recv() (*testpb.Reply, error) {
	for {
		line, err := e.lines.ReadBytes('\n')
		if err != nil {
			e.body.Close()
			return nil, err
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue
		}
		encoded, err := base64.StdEncoding.DecodeString(string(data))
		if err != nil {
			return nil, err
		}
		reply := &testpb.Reply{}
		return reply, proto.Unmarshal(encoded, reply)
	}
}
