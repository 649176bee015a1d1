package etcd_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// startMembers runs a cluster of several members in this process and returns the addresses for clients.
func startMembers(t *testing.T, n int) []string {
	t.Helper()
	peers, names := make([]url.URL, n), make([]string, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free: members must know each other's
		if err != nil {
			t.Skipf("no socket for a member of the cluster: %v", err)
		}
		peers[i] = url.URL{Scheme: "http", Host: l.Addr().String()}
		names[i] = fmt.Sprintf("m%d=%s", i, peers[i].String())
		_ = l.Close()
	}
	var addresses []string
	var members []*embed.Etcd
	for i := range n {
		config := embed.NewConfig()
		config.Name, config.Dir = fmt.Sprint("m", i), t.TempDir()
		config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peers[i]}, []url.URL{peers[i]}
		config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
		config.InitialCluster, config.UnsafeNoFsync = strings.Join(names, ","), true
		config.TickMs, config.ElectionMs = 200, 5000 // the machine may be busy
		server, err := embed.StartEtcd(config)
		if err != nil {
			t.Skipf("a cluster of %d members does not start here: %v", n, err)
		}
		t.Cleanup(server.Close)
		members = append(members, server)
		addresses = append(addresses, server.Clients[0].Addr().String())
	}
	for _, server := range members {
		select {
		case <-server.Server.ReadyNotify():
		case <-time.After(wait):
			t.Skipf("the cluster is not ready after %v", wait)
		}
	}
	return addresses
}

// elsewhere are the dial options by which etcd's client uses the policy. Its resolver names round_robin in a service config of its
// own, which has to be disabled.
func elsewhere() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`),
	}
}

// TestSilentMember has the connection to one of three members stand still for a second, twice. Serializable reads go past it and
// give what was written; a watch and a lease are undisturbed.
func TestSilentMember(t *testing.T) {
	fronts, endpoints := startProxies(t, startMembers(t, 3), false)
	s := hedgetest.New(t, hedge.WithReadOnlyMethods(reads))
	c := client(t, endpoints, append(elsewhere(),
		hedgetest.Interceptors(s)...)...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait)
	defer cancel()
	alive, watch := leaseAndWatch(t, ctx, c)
	for k := range keys {
		if _, err := c.Put(ctx, fmt.Sprint("key-", k), fmt.Sprint(k)); err != nil {
			t.Fatal(err)
		}
	}

	for _, endpoint := range endpoints { // a linearizable read waits until the member has what was written
		if _, err := client(t, []string{endpoint}).Get(ctx, "key-0"); err != nil {
			t.Fatal(err)
		}
	}

	const count = 2000 // 500 a second
	var wrong, slow atomic.Int64
	var all sync.WaitGroup
	for n := range count {
		switch n {
		case 500, 1500:
			fronts[n%3].frozen.Lock()
			time.AfterFunc(time.Second, fronts[n%3].frozen.Unlock)
		}
		all.Go(func() {
			began, k := time.Now(), n%keys
			got, err := c.Get(ctx, fmt.Sprint("key-", k), clientv3.WithSerializable())
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != fmt.Sprint(k) {
				wrong.Add(1)
			}
			if time.Since(began) > 500*ms {
				slow.Add(1)
			}
		})
		<-time.After(2 * ms)
	}
	all.Wait()
	var row stats.Method
	for _, r := range s.Methods() {
		if r.Method == reads {
			row = r
		}
	}
	t.Logf("%d reads, %d of them over 500 ms, %d moved; %.1f%% extra load", count, slow.Load(), row.Moved, 100*row.HedgeRate())
	if wrong.Load() > 0 {
		t.Errorf("%d reads failed, or gave another value", wrong.Load())
	}
	if row.Ready != 3 || row.Moved < count/20 {
		t.Errorf("%d backends, %d primaries moved", row.Ready, row.Moved)
	}
	seen := 0
	for seen < keys {
		events, ok := <-watch
		if !ok || events.Err() != nil {
			t.Fatalf("the watch ended with %v after %d events", events.Err(), seen)
		}
		seen += len(events.Events)
	}
	if answer := <-alive; answer == nil {
		t.Error("the lease is not kept alive")
	}
}
