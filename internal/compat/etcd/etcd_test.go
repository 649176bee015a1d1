package etcd_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stream"
)

const (
	ms     = time.Millisecond
	keys   = 50
	reads  = "/etcdserverpb.KV/Range"
	wait   = 30 * time.Second // for what should come soon
	resets = 4
)

// startServer runs one member in this process.
func startServer(t *testing.T) string {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{any}, []url.URL{any}
	config.UnsafeNoFsync = true
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(wait):
		t.Fatal("etcd is not ready")
	}
	return server.Clients[0].Addr().String()
}

// proxy is a front of the server that is one of its endpoints. It holds back what the server says, for a while, now
// and then, and cuts its connections when it is told to.
type proxy struct {
	listener net.Listener
	cutNext  atomic.Bool  // instead of the next answer the connections are reset
	frozen   sync.RWMutex // held while nothing comes
	mu       sync.Mutex
	conns    map[*net.TCPConn]struct{}
	all      sync.WaitGroup
}

func startProxy(t *testing.T, server string, stalls bool) *proxy {
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
			p.all.Go(func() { p.serve(client.(*net.TCPConn), server, stalls) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.reset(); p.all.Wait() })
	return p
}

func (p *proxy) serve(client *net.TCPConn, address string, stalls bool) {
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
		if stalls && rand.IntN(50) == 0 {
			<-time.After(50 * ms)
		}
		p.frozen.RLock()
		//lint:ignore SA2001 to wait for its end is all that is wanted.
		p.frozen.RUnlock()
		if p.cutNext.CompareAndSwap(true, false) {
			p.reset()
			return
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

func (p *proxy) address() string { return p.listener.Addr().String() }

func client(t *testing.T, endpoints []string, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: wait, DialOptions: options, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func scheduler(t *testing.T, options ...hedge.Option) *hedge.Scheduler {
	t.Helper()
	return hedgetest.New(t, append([]hedge.Option{hedge.WithReadOnlyMethods(reads), hedge.WithBudgetPercent(400), hedge.WithWarmup(1<<40, 5*ms)}, options...)...)
}

// TestReads writes, reads, watches and keeps a lease while some answers are late and connections are reset. Every
// read gives the value that was written last, and no read fails.
func TestReads(t *testing.T) {
	server := startServer(t)
	fronts := []*proxy{startProxy(t, server, true), startProxy(t, server, true), startProxy(t, server, true)}
	endpoints := []string{fronts[0].address(), fronts[1].address(), fronts[2].address()}
	s := scheduler(t)
	hedged := client(t, endpoints,
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)), grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
	writer := client(t, []string{server}) // plain, and no connection of its is reset
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait)
	defer cancel()

	lease, err := hedged.Grant(ctx, 5) // seconds
	if err != nil {
		t.Fatal(err)
	}
	alive, err := hedged.KeepAlive(ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hedged.Put(ctx, "leased", "value", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	watch := hedged.Watch(ctx, "key-", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if first := <-watch; !first.Created {
		t.Fatalf("%+v", first)
	}

	const rounds = 20
	var watched []string
	var watching sync.WaitGroup
	watching.Go(func() {
		for len(watched) < rounds*keys {
			events, ok := <-watch
			if !ok || events.Err() != nil {
				t.Errorf("the watch ended with %v after %d events", events.Err(), len(watched))
				return
			}
			for _, e := range events.Events {
				watched = append(watched, string(e.Kv.Key)+"="+string(e.Kv.Value))
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
		var all sync.WaitGroup
		for reader := range 5 {
			all.Go(func() {
				for k := reader; k < keys+5; k += 5 { // five are missing
					got, err := hedged.Get(ctx, fmt.Sprint("key-", k))
					missing := k >= keys
					if err != nil || missing != (len(got.Kvs) == 0) || !missing && string(got.Kvs[0].Value) != fmt.Sprint(round) {
						t.Errorf("round %d, key %d: %v, %v", round, k, got, err)
					}
				}
			})
		}
		all.Wait()
	}
	watching.Wait()
	for i, event := range watched {
		if want := fmt.Sprintf("key-%d=%d", i%keys, i/keys); event != want {
			t.Fatalf("event %d is %q, want %q", i, event, want)
		}
	}
	if answer := <-alive; answer == nil {
		t.Error("the lease is not kept alive")
	}
	if got, err := hedged.Get(ctx, "leased"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the key of the lease: %v, %v", got, err)
	}
	stats := s.Stats()
	t.Logf("%d calls, %d hedges, %d won", stats.Calls, stats.Hedges, stats.HedgeWins)
	if stats.HedgeWins == 0 {
		t.Error("no hedge won: nothing was tested")
	}
}

// TestTheClientsOwnInterceptor has connections reset under reads. The client retries them by an interceptor that it
// installs itself: grpc.WithUnaryInterceptor replaces that one without a word, and the chain forms leave it in place.
func TestTheClientsOwnInterceptor(t *testing.T) {
	server := startServer(t)
	for _, tc := range []struct {
		name   string
		option func(grpc.UnaryClientInterceptor) grpc.DialOption
		fails  bool
	}{
		{"plain", nil, false},
		{"WithChainUnaryInterceptor", func(i grpc.UnaryClientInterceptor) grpc.DialOption { return grpc.WithChainUnaryInterceptor(i) }, false},
		{"WithUnaryInterceptor", grpc.WithUnaryInterceptor, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			front := startProxy(t, server, false)
			var options []grpc.DialOption
			if tc.option != nil {
				options = append(options, tc.option(interceptor.Unary(scheduler(t, hedge.WithMaxHedges(0)))))
			}
			c := client(t, []string{front.address()}, options...)
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			failed := 0
			for range resets {
				front.cutNext.Store(true)
				if _, err := c.Get(ctx, "key"); status.Code(err) == codes.Unavailable {
					failed++
				} else if err != nil {
					t.Error(err)
				}
			}
			if tc.fails != (failed > 0) {
				t.Errorf("%d of %d reads failed", failed, resets)
			}
		})
	}
}
