package testserver_test

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestMeter_CountsWhatTheServerCounts compares the two ends of connections that end again and
// again, with replies of many frames.
func TestMeter_CountsWhatTheServerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: byID, Limit: &testserver.Limit{Resets: 4}})
		meter := testserver.NewMeter(cluster.Dial)
		client := testpb.NewTestServiceClient(cluster.ClientT(t, grpc.WithContextDialer(meter.Dial)))
		for id := range 12 {
			req := &testpb.Request{Id: uint64(id), ReplyBytes: uint32(id) * 10_000}
			if _, err := client.Unary(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			resetCalls(t, cluster, client, 1)
		}
		served := cluster.ConnCounts()
		want := testserver.MeterCounts{Connections: 3, Requests: 24, Resets: 12, GoAways: 2}
		if got := meter.Counts(); got != want {
			t.Errorf("the client's end counted %+v, want %+v", got, want)
		}
		if served.Connections != 3 || served.Requests != 24 || served.Resets != 12 || served.GoAways != 2 {
			t.Errorf("the server's end counted %+v", served)
		}
	})
}
