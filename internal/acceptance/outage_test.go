package acceptance_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule13_WaitsForAConnectionTeachNothing has calls with WaitForReady wait for the end of an
// outage of 30 s. The learned latencies, and the tail after the outage, stay the same,
// whether calls are hedged or only measured.
func TestRule13_WaitsForAConnectionTeachNothing(t *testing.T) {
	for _, rate := range []int{20, 2} { // calls a second
		for kind, call := range hedgetest.Kinds {
			for name, opts := range map[string][]hedge.Option{
				"hedged": nil, "unhedged": {hedge.WithMaxHedges(0)}} {
				hedgetest.Run(t, fmt.Sprintf("%s,%s,%d per second", name, kind, rate), func(t *testing.T) {
					c := outageClient{call: call, gap: time.Second / time.Duration(rate), s: hedgetest.All(t, opts...)}
					c.start(t)
					c.makeCalls(t, 2*time.Minute)
					before := c.learned()
					c.calls.Wait()
					c.cluster.Stop(0)
					synctest.Wait()
					c.makeCalls(t, 30*time.Second)
					if err := c.cluster.Restart(0); err != nil {
						t.Fatal(err)
					}
					c.calls.Wait()
					after := c.learned()
					c.took = nil
					c.makeCalls(t, time.Minute/2)
					c.calls.Wait()
					t.Logf("p95 %v, and %v after the outage; p98 of calls after it %v", before, after, c.p98())
					if after > 2*before {
						t.Errorf("p95 is %v after the outage, and was %v before", after, before)
					}
					if p98 := c.p98(); name == "hedged" && p98 > 15*ms {
						t.Errorf("p98 of the calls after the outage is %v, want at most 15 ms", p98)
					}
				})
			}
		}
	}
}

// outageClient makes calls of a server that answers after 3 ms, or 300 ms in 3% of calls.
type outageClient struct {
	call    hedgetest.Kind
	gap     time.Duration
	s       *hedge.Scheduler
	cluster *testserver.Cluster
	client  testpb.TestServiceClient

	calls sync.WaitGroup
	mu    sync.Mutex
	took  []time.Duration
}

func (c *outageClient) start(t *testing.T) {
	c.cluster = testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, CountsOnly: true,
		Latency: testserver.Straggler(testserver.LogNormal(3*ms, ms/2), 0.03, 100)})
	conn := c.cluster.ClientT(t, append(hedgetest.Interceptors(c.s), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 100 * ms, MaxDelay: 200 * ms, Multiplier: 2}}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
	testserver.ConnectT(t, conn)
	c.client = testpb.NewTestServiceClient(conn)
}

func (c *outageClient) makeCalls(t *testing.T, lasts time.Duration) {
	for id := range uint64(lasts / c.gap) {
		c.calls.Go(func() {
			began := time.Now()
			_, err := c.call(t.Context(), c.client, &testpb.Request{Id: id})
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.took = append(c.took, time.Since(began)); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(c.gap)
	}
}

// learned returns the learned p95.
func (c *outageClient) learned() time.Duration {
	m := c.s.Methods()[0]
	p95, _ := c.s.Latency(m.Target, m.Method, 0.95)
	return p95
}

func (c *outageClient) p98() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	return c.took[len(c.took)*98/100]
}
