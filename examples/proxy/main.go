// Command proxy is a hedging reverse proxy in front of any gRPC service and any HTTP service, for
// clients in other languages. It passes messages of any codec through as they are.
//
//	cd examples && go run ./proxy
//
// Without flags it measures itself in front of two services of its own. With -grpc, -http or both it
// serves until it is interrupted:
//
//	go run ./proxy -grpc dns:///backend:50051 -methods '/pkg.Svc/Get*,/pkg.Svc/List*'
//	go run ./proxy -http http://backend:8080 -requests 'POST /{index}/_search'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // of clients that compress
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	hedgedebug "github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/interceptor"
)

var (
	grpcTo  = flag.String("grpc", "", "the target of the gRPC service, such as dns:///backend:50051")
	methods = flag.String("methods", "",
		"patterns of the gRPC methods that may run twice, such as /pkg.Svc/Get*,/pkg.Svc/List*")
	httpTo   = flag.String("http", "", "the URL of the HTTP service, such as http://backend:8080")
	requests = flag.String("requests", "",
		"patterns of requests besides GET that may run twice, such as 'POST /{index}/_search'")
	onGRPC  = flag.String("listen-grpc", "localhost:0", "the address for gRPC")
	onHTTP  = flag.String("listen-http", "localhost:0", "the address for HTTP")
	onDebug = flag.String("listen-debug", "localhost:0", "the address of the debug page")
)

// startProxy returns the addresses for gRPC, HTTP and the debug page.
func startProxy(grpcTo, httpTo, methods, requests string) (addresses [3]string, err error) {
	isPattern := func(r rune) bool { return r == ',' }
	reads := strings.FieldsFunc(methods, isPattern)
	options := []hedge.Option{hedge.WithIdempotentOnly()} // GET requests, and others that HTTP calls safe
	if len(reads) > 0 {
		// The proxy does not know which methods are streams. To the backend, each is a stream of one request.
		options = append(options, hedge.WithSingleRequest(reads...), hedge.WithWaitForMessage(reads...))
	}
	if reads = append(reads, strings.FieldsFunc(requests, isPattern)...); len(reads) > 0 {
		options = append(options, hedge.WithReadOnlyMethods(reads...))
	}
	s, err := hedge.New(options...)
	if err != nil {
		return addresses, err
	}
	backend, err := grpc.NewClient(grpcTo, interceptor.DialOptions(s,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // or your service's credentials
		grpc.WithDefaultServiceConfig(balancer.ServiceConfig),    // hedges go to other backends
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))...)
	if err != nil {
		return addresses, err
	}
	to, err := url.Parse(httpTo)
	if err != nil {
		return addresses, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 1000, true
	for i, serve := range []func(net.Listener) error{
		grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(math.MaxInt32),
			grpc.UnknownServiceHandler(func(_ any, client grpc.ServerStream) error { return forward(client, backend) })).Serve,
		(&http.Server{Handler: &httputil.ReverseProxy{FlushInterval: -1, Transport: hedgehttp.Transport(s, transport),
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() }}}).Serve,
		(&http.Server{Handler: hedgedebug.Handler(s)}).Serve,
	} {
		listener, err := net.Listen("tcp", []string{*onGRPC, *onHTTP, *onDebug}[i])
		if err != nil {
			return addresses, err
		}
		addresses[i] = listener.Addr().String()
		go func() { log.Fatal(serve(listener)) }()
	}
	return addresses, nil
}

// forward makes a client's call of any method, and returns its status.
func forward(client grpc.ServerStream, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(client.Context()) // it has the client's deadline
	defer cancel()
	method, _ := grpc.Method(ctx)
	header, _ := metadata.FromIncomingContext(ctx)
	codec := strings.TrimLeft(strings.TrimPrefix(header.Get("content-type")[0], "application/grpc"), "+;")
	header.Delete("grpc-accept-encoding") // for the proxy itself, which compresses as the client does
	backend, err := conn.NewStream(metadata.NewOutgoingContext(ctx, header),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodecV2(raw{}),
		grpc.CallContentSubtype(codec))
	if err != nil {
		return err
	}
	go func() {
		if pass(client.RecvMsg, backend.SendMsg) != io.EOF {
			cancel() // the client has gone
		}
		backend.CloseSend()
	}()
	if header, err := backend.Header(); err == nil && header != nil {
		if err := client.SendHeader(header); err != nil {
			return err
		}
	}
	err = pass(backend.RecvMsg, client.SendMsg)
	client.SetTrailer(backend.Trailer())
	if err == io.EOF {
		return nil
	}
	return err
}

// pass receives messages and sends each of them, until there are no more: the error is io.EOF then.
func pass(receive, send func(any) error) error {
	for {
		message := &wrapperspb.BytesValue{}
		if err := receive(message); err != nil {
			return err
		}
		if err := send(message); err != nil {
			return err
		}
	}
}

// raw is a codec that leaves messages as they are. Hedging copies protobuf messages only, so each
// is the value of one.
type raw struct{}

func (raw) Name() string { return "" }

func (raw) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.(*wrapperspb.BytesValue).Value)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, message any) error {
	message.(*wrapperspb.BytesValue).Value = data.Materialize()
	return nil
}

func main() {
	flag.Parse()
	if *grpcTo == "" && *httpTo == "" {
		if err := demonstrate(os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	addresses, err := startProxy(*grpcTo, *httpTo, *methods, *requests)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("gRPC on %s, HTTP on %s, debug page on http://%s\n", addresses[0], addresses[1], addresses[2])
	interrupted, _ := signal.NotifyContext(context.Background(), os.Interrupt)
	<-interrupted.Done()
}

// What follows only demonstrates the proxy.

const calls = 400

func demonstrate(w io.Writer) error {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterGreeterServer(server, greeter{})
	go server.Serve(listener)
	defer server.Stop()
	web := httptest.NewServer(greeter{})
	defer web.Close()
	proxy, err := startProxy(listener.Addr().String(), web.URL, "/helloworld.Greeter/*", "")
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "%d calls of each kind, 10 at a time. An attempt takes 5 ms, and 100 ms in one of fifty. The clients "+
		"do not hedge.\n\n", calls)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tp50\tp99")
	for _, row := range []struct {
		name, to string
		call     func(to string) (call func() error, err error)
	}{
		{"gRPC, directly", listener.Addr().String(), overGRPC},
		{"gRPC, through the proxy", proxy[0], overGRPC},
		{"HTTP, directly", web.URL, overHTTP},
		{"HTTP, through the proxy", "http://" + proxy[1], overHTTP},
	} {
		call, err := row.call(row.to)
		if err != nil {
			return err
		}
		p50, p99, err := measure(call)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		fmt.Fprintf(table, "%s\t%v\t%v\n", row.name, p50, p99)
	}
	table.Flush()
	page, err := http.Get("http://" + proxy[2] + "?format=text")
	if err != nil {
		return err
	}
	defer page.Body.Close()
	fmt.Fprintln(w, "\nThe debug page as text:")
	fmt.Fprintln(w)
	_, err = io.Copy(w, page.Body)
	return err
}

func overGRPC(target string) (func() error, error) {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	client := pb.NewGreeterClient(conn)
	return func() error {
		_, err := client.SayHello(context.Background(), &pb.HelloRequest{Name: "hedge"})
		return err
	}, err
}

func overHTTP(url string) (func() error, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
	return func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}, nil
}

// measure makes all calls, 10 at a time, and returns two percentiles of their latencies.
func measure(call func() error) (p50, p99 time.Duration, err error) {
	latencies, errs := make([]time.Duration, calls), make([]error, calls)
	var wg sync.WaitGroup
	for caller := range 10 {
		wg.Go(func() {
			for i := caller; i < calls; i += 10 {
				start := time.Now()
				errs[i] = call()
				latencies[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	slices.Sort(latencies)
	tenth := 100 * time.Microsecond
	return latencies[calls/2].Round(tenth), latencies[calls*99/100].Round(tenth), errors.Join(errs...)
}

// greeter is the service, for gRPC and for HTTP.
type greeter struct{ pb.UnimplementedGreeterServer }

// work takes a while, and reports whether it came to its end.
func work(ctx context.Context) error {
	delay := 5 * time.Millisecond
	if rand.IntN(50) == 0 {
		delay = 100 * time.Millisecond
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done(): // another attempt has answered
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Message: "Hello " + in.GetName()}, work(ctx)
}

func (greeter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if work(r.Context()) == nil {
		fmt.Fprintln(w, "Hello")
	}
}
