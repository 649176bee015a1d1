package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestAFailureIsNoCancel(t *testing.T) {
	for name, plan := range map[string]testserver.Plan{
		"status":     {Code: codes.Canceled},
		"connection": {Ending: testserver.CloseConn},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Config{Script: always(plan)},
				func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
					if _, err := client.Unary(t.Context(), &testpb.Request{}); err == nil {
						t.Error("the call succeeded")
					}
					synctest.Wait()
					want := testserver.Counts{Attempts: 1, Failed: 1}
					if got := cluster.Counts(); got != want {
						t.Errorf("counted %+v, want %+v", got, want)
					}
					if r := cluster.Records()[0]; r.WasCancelled() || r.Code == codes.OK {
						t.Errorf("recorded %+v", r)
					}
				})
		})
	}
}

func TestWaitIdle(t *testing.T) {
	config := testserver.Config{Latency: testserver.Constant(time.Minute), CountsOnly: true}
	inBubble(t, config, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
		if err := cluster.WaitIdle(t.Context()); err != nil {
			t.Errorf("at rest: %v", err)
		}
		go client.Unary(t.Context(), &testpb.Request{})
		synctest.Wait()
		if got := cluster.Counts().InFlight; got != 1 {
			t.Errorf("%d in flight, want 1", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := cluster.WaitIdle(ctx); err != context.DeadlineExceeded {
			t.Errorf("with a call of a minute in flight: %v after a second", err)
		}
		start := time.Now()
		if err := cluster.WaitIdle(t.Context()); err != nil {
			t.Error(err)
		}
		if got := time.Since(start); got != 59*time.Second {
			t.Errorf("waited %v more, want 59s", got)
		}
		if got := len(cluster.Records()); got != 0 {
			t.Errorf("%d records in a cluster that only counts", got)
		}
		cluster.Reset()
		if got := cluster.Counts(); got != (testserver.Counts{}) {
			t.Errorf("%+v after Reset", got)
		}
	})
}
