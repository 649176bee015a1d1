package cost

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	testpb "github.com/grpchedge/hedge/proto"
)

// httpClient makes unary calls as HTTP requests. It has no other methods.
type httpClient struct {
	testpb.TestServiceClient
	client http.Client
	url    string
}

func (c *httpClient) Unary(ctx context.Context, req *testpb.Request, _ ...grpc.CallOption) (*testpb.Reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?id="+strconv.FormatUint(req.GetId(), 10), nil)
	if err != nil {
		return nil, err
	}
	res, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, all)
	}
	reply := new(testpb.Reply)
	if err == nil {
		err = proto.Unmarshal(all, reply)
	}
	return reply, err
}

// serveHTTP answers HTTP requests by calls of the client, until it is stopped.
func serveHTTP(client testpb.TestServiceClient) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.URL.Query().Get("id"), 10, 64)
		var all []byte
		if err == nil {
			var reply *testpb.Reply
			if reply, err = client.Unary(r.Context(), &testpb.Request{Id: id}); err == nil {
				all, err = proto.Marshal(reply)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = w.Write(all)
	})}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/", func() { _ = server.Close() }, nil
}
