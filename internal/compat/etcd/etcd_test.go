package etcd_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

const (
	ms    = time.Millisecond
	keys  = 50
	reads = "/etcdserverpb.KV/Range"
	wait  = 5 * time.Minute // for what should come soon
)

// proxy is an endpoint in front of the server. From time to time it delays the server's answers,
// and it closes its connections on demand.
type proxy struct {
	listener net.Listener
	mu       sync.Mutex
	conns    map[*net.TCPConn]struct{}
	all      sync.WaitGroup
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, conns: map[*net.TCPConn]struct{}{}}
	p.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client.(*net.TCPConn), server) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.reset(); p.all.Wait() })
	return p
}

func (p *proxy) serve(client *net.TCPConn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, client)
	}()
	p.all.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if rand.IntN(50) == 0 {
			<-time.After(50 * ms)
		}
		if _, werr := client.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// reset cuts all connections with RST.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

func client(t *testing.T, endpoints []string, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: wait, DialOptions: options,
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestReads writes, reads and watches while some answers are late and connections are reset. Every
// read gives the value that was written last, and no read fails.
func TestReads(t *testing.T) {
	server := startMember(t)
	var fronts []*proxy
	var endpoints []string
	for range 3 {
		fronts = append(fronts, startProxy(t, server))
		endpoints = append(endpoints, fronts[len(fronts)-1].listener.Addr().String())
	}
	s := hedgetest.Fixed(t, 5*ms, hedge.WithReadOnlyMethods(reads))
	hedged := client(t, endpoints, hedgetest.Interceptors(s)...)
	writer := client(t, []string{server}) // plain, and no connection of its is reset
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := hedged.Watch(ctx, "key-", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first := <-watch; !first.Created {
		t.Fatalf("the watch begins with %+v, want its creation", first)
	}
	const rounds = 20
	var watching sync.WaitGroup
	watching.Go(func() {
		for n := 0; n < rounds*keys; {
			events := <-watch
			if events.Err() != nil || len(events.Events) == 0 {
				t.Errorf("the watch ended with %v after %d events", events.Err(), n)
				return
			}
			for _, e := range events.Events {
				if got, want := fmt.Sprintf("%s=%s", e.Kv.Key, e.Kv.Value), fmt.Sprintf("key-%d=%d", n%keys, n/keys); got != want {
					t.Errorf("event %d is %q, want %q", n, got, want)
				}
				n++
			}
		}
	})
	for round := range rounds {
		for k := range keys {
			if _, err := writer.Put(ctx, fmt.Sprint("key-", k), fmt.Sprint(round)); err != nil {
				t.Fatal(err)
			}
		}
		if round%5 == 2 { // four times
			for _, f := range fronts {
				f.reset()
			}
		}
		hedgetest.P99(t, keys+5, 5, func(k int) error { // five are missing
			got, err := hedged.Get(ctx, fmt.Sprint("key-", k))
			if err == nil && (k >= keys) == (len(got.Kvs) == 0) && (k >= keys || string(got.Kvs[0].Value) == fmt.Sprint(round)) {
				return nil
			}
			return fmt.Errorf("round %d, key %d: %v, %w", round, k, got, err)
		})
	}
	watching.Wait()
	stats := s.Stats()
	t.Logf("%d calls, %d hedges, %d won", stats.Calls, stats.Hedges, stats.HedgeWins)
	if stats.HedgeWins == 0 {
		t.Error("no hedge won: nothing was tested")
	}
}

// startMember runs a server in this process and returns its address for clients.
func startMember(t *testing.T) string {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	free := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenPeerUrls, config.ListenClientUrls = free, free
	config.UnsafeNoFsync = true
	config.TickMs, config.ElectionMs = 200, 5000 // the machine may be busy
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(wait):
		t.Skipf("it is not ready after %v", wait)
	}
	return server.Clients[0].Addr().String()
}
