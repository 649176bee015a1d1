package spanner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner/spannertest"
	"cloud.google.com/go/spanner/spansql"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge/internal/testserver"
)

// raw leaves messages as the bytes that they are on the wire.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

// request is a request that a proxy forwards, and answer is the server's answer.
type request struct {
	method string
	body   []byte
}

type answer struct {
	messages [][]byte
	err      error
}

// passer forwards one request at a time. The passer and its channels are outside the bubble:
// virtual time does not advance while a server in another process works.
type passer struct {
	ask chan request
	say chan answer
}

// database is one server, which listens on a port, and what passes requests on to it.
type database struct{ idle chan *passer }

// startDatabase must be called outside of the bubble.
func startDatabase(t *testing.T) *database {
	t.Helper()
	server, err := spannertest.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	server.SetLogger(func(string, ...any) {})
	ddl, err := spansql.ParseDDL("ddl", "CREATE TABLE "+table+" (id INT64, value STRING(MAX)) PRIMARY KEY (id)")
	if err == nil {
		err = server.UpdateDDL(ddl)
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	d := &database{idle: make(chan *passer, 32)}
	for range cap(d.idle) {
		p := &passer{make(chan request), make(chan answer)}
		d.idle <- p
		go func() {
			for r := range p.ask {
				p.say <- pass(conn, r)
			}
		}()
	}
	t.Cleanup(func() {
		for range cap(d.idle) {
			close((<-d.idle).ask)
		}
		_ = conn.Close()
	})
	return d
}

func pass(conn *grpc.ClientConn, r request) (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, r.method)
	if err == nil {
		err = errors.Join(s.SendMsg(&r.body), s.CloseSend())
	}
	for err == nil {
		var m []byte
		if err = s.RecvMsg(&m); err == nil {
			a.messages = append(a.messages, m)
		}
	}
	if err != io.EOF {
		a.err = err
	}
	return a
}

// service is several proxies, with latencies of their own, in front of one database.
type service struct {
	database  *database
	listeners map[string]*testserver.Listener
	addresses []resolver.Address

	mu   sync.Mutex
	draw *rand.Rand
	ids  map[string][]string // the numbers of the attempts that carried a request id
}

func startService(t *testing.T, d *database) *service {
	t.Helper()
	s := &service{
		database: d, listeners: map[string]*testserver.Listener{}, draw: rand.New(rand.NewPCG(1, 2)),
		ids: map[string][]string{},
	}
	for i := range backends {
		l, address := testserver.NewListener(), fmt.Sprint("backend-", i)
		server := grpc.NewServer(grpc.UnknownServiceHandler(s.proxy), grpc.ForceServerCodec(raw{}))
		var served sync.WaitGroup
		served.Go(func() { _ = server.Serve(l) })
		t.Cleanup(func() {
			server.Stop()
			served.Wait()
		})
		s.listeners[address] = l
		s.addresses = append(s.addresses, resolver.Address{Addr: address})
	}
	return s
}

// latency is 200 to 400 ms for 2% of the attempts, and up to 2 ms for the others.
func (s *service) latency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draw.Float64() < 0.02 {
		return 200*ms + time.Duration(s.draw.Float64()*float64(200*ms))
	}
	return time.Duration(s.draw.Float64() * float64(2*ms))
}

// note takes note of the request ids of an attempt.
func (s *service) note(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range md.Get("x-goog-spanner-request-id") {
		number := "0"
		if n := md.Get("grpc-previous-rpc-attempts"); len(n) > 0 {
			number = n[0]
		}
		s.ids[id] = append(s.ids[id], number)
	}
}

// proxy is the handler of each.
func (s *service) proxy(_ any, ss grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(ss)
	s.note(ss.Context())
	r := request{method: method}
	if err := ss.RecvMsg(&r.body); err != nil {
		return err
	}
	select {
	case <-time.After(s.latency()):
	case <-ss.Context().Done():
		return ss.Context().Err()
	}
	p := <-s.database.idle
	p.ask <- r
	a := <-p.say
	s.database.idle <- p
	for _, m := range a.messages {
		if err := ss.SendMsg(&m); err != nil {
			return err
		}
	}
	return a.err
}

// dialOptions returns the dial options of a client whose connections reach all proxies.
func (s *service) dialOptions(options []grpc.DialOption) []grpc.DialOption {
	names := manual.NewBuilderWithScheme(scheme)
	names.InitialState(resolver.State{Addresses: s.addresses})
	return append(options, grpc.WithResolvers(names),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s.listeners[address].Dial(ctx)
		}))
}
