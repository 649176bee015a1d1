package cost

import (
	"net"
	"net/http"

	"github.com/grpchedge/hedge/bench/run"
	testpb "github.com/grpchedge/hedge/proto"
)

// serveHTTP answers HTTP requests by calls of the client, until it is stopped.
func serveHTTP(client testpb.TestServiceClient) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: run.NewGateway(client)}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}
