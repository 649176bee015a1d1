package testserver_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test against an in-memory cluster in virtual time.
func inBubble(t *testing.T, config testserver.Config,
	test func(*testing.T, *testserver.Cluster, testpb.TestServiceClient)) {
	t.Helper()
	config.InMemory = true
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, config)
		test(t, cluster, testpb.NewTestServiceClient(cluster.ClientT(t)))
	})
}

// always is the script that has one plan for every attempt.
func always(p testserver.Plan) testserver.Script {
	return func(testserver.Attempt) testserver.Plan { return p }
}
