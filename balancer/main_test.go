package balancer_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

const ms = time.Millisecond

// serveInstead is set where this binary can also be a server in a process of its own. It reports whether it has been one.
var serveInstead = func() bool { return false }

func TestMain(m *testing.M) {
	if !serveInstead() {
		goleak.VerifyTestMain(m)
	}
}

// over is the dial option that has the policy wrap a child, given as an entry of childPolicy.
func over(child string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(fmt.Sprintf(
		`{"loadBalancingConfig": [{%q: {"childPolicy": [%s]}}]}`, balancer.Name, child))
}

const (
	roundRobin   = `{"round_robin": {}}`
	leastRequest = `{"least_request_experimental": {"choiceCount": 2}}`
	pickFirst    = `{"pick_first": {}}`
)

// dial returns a connection of the cluster's that hedges as s says. In a bubble, every backend is connected that
// the policy connects to by itself.
func dial(t testing.TB, cluster *testserver.Cluster, s *hedge.Scheduler, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), options...)...)
	testserver.ConnectT(t, conn)
	return conn
}

// kind is a way to make a call of one reply.
type kind struct {
	name string
	call func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request, opts ...grpc.CallOption) (*testpb.Reply, error)
}

var kinds = []kind{
	{"unary", func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request, opts ...grpc.CallOption) (*testpb.Reply, error) {
		return c.Unary(ctx, req, opts...)
	}},
	{"stream", func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request, opts ...grpc.CallOption) (*testpb.Reply, error) {
		req.Messages = 1
		st, err := c.ServerStream(ctx, req, opts...)
		if err != nil {
			return nil, err
		}
		first, err := st.Recv()
		for err == nil {
			_, err = st.Recv()
		}
		if err == io.EOF {
			err = nil
		}
		return first, err
	}},
}

// inBubble runs a test of each kind of call in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, k) })
		})
	}
}

// visited returns the backends that the attempts of a request met, in the order of their numbers.
func visited(cluster *testserver.Cluster, id uint64) []int {
	records := cluster.RecordsOf(id)
	slices.SortFunc(records, func(a, b testserver.Record) int { return a.Number - b.Number })
	var backends []int
	for _, r := range records {
		backends = append(backends, r.Backend)
	}
	return backends
}

// different is how many different backends there are among those visited.
func different(backends []int) int {
	return len(slices.Compact(slices.Sorted(slices.Values(backends))))
}

// lastAnswers is a script in which only the given attempt answers.
func lastAnswers(number int) testserver.Script {
	return func(a testserver.Attempt) testserver.Plan {
		if a.Number == number {
			return testserver.Plan{}
		}
		return testserver.Plan{Ending: testserver.Hang}
	}
}
