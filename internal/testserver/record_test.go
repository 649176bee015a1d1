package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestRecordOfAnAnswer(t *testing.T) {
	config := testserver.Config{Latency: testserver.Constant(time.Second)}
	inBubble(t, config, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
		start := time.Now()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "grpc-previous-rpc-attempts", "1")
		if _, err := client.Unary(ctx, &testpb.Request{Id: 7}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		records := cluster.RecordsOf(7)
		if len(records) != 1 || len(cluster.RecordsOf(8)) != 0 {
			t.Fatalf("records of 7: %v, of 8: %v", records, cluster.RecordsOf(8))
		}
		r := records[0]
		if r.Method != testpb.TestService_Unary_FullMethodName || r.Number != 1 || len(r.Metadata.Get("grpc-previous-rpc-attempts")) != 1 {
			t.Errorf("recorded %+v", r)
		}
		if !r.Arrival.Equal(start) || r.Ended.Sub(start) != time.Second || len(r.Sent) != 1 || r.Code != codes.OK || r.WasCancelled() {
			t.Errorf("recorded %+v", r)
		}
		want := testserver.Counts{Attempts: 1, Hedges: 1, Messages: 1}
		if got := cluster.Counts(); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})
}

// The server must see a cancel when it happens, in whatever the attempt waits for.
func TestRecordOfACancel(t *testing.T) {
	const s = time.Second
	unary := func(ctx context.Context, client testpb.TestServiceClient) {
		client.Unary(ctx, &testpb.Request{Id: 7})
	}
	stream := func(ctx context.Context, client testpb.TestServiceClient) {
		stream, err := client.ServerStream(ctx, &testpb.Request{Id: 7, Messages: 100, ReplyBytes: 16 << 10})
		if err != nil {
			return
		}
		for err == nil {
			_, err = stream.Recv()
		}
	}
	unread := func(ctx context.Context, client testpb.TestServiceClient) {
		if _, err := client.ServerStream(ctx, &testpb.Request{Id: 7, Messages: 100, ReplyBytes: 16 << 10}); err == nil {
			<-ctx.Done()
		}
	}
	silent := func(ctx context.Context, client testpb.TestServiceClient) {
		if _, err := client.ClientStream(ctx); err == nil {
			<-ctx.Done()
		}
	}
	for _, tt := range []struct {
		name string
		call func(context.Context, testpb.TestServiceClient)
		plan testserver.Plan
		id   uint64
		sent int // messages sent by the time of the cancel; −1: some, and not all
	}{
		{"unary, delayed", unary, testserver.Plan{Delay: time.Minute}, 7, 0},
		{"unary, hung", unary, testserver.Plan{Ending: testserver.Hang}, 7, 0},
		{"stream, delayed", stream, testserver.Plan{Delay: time.Minute}, 7, 0},
		{"stream, between messages", stream, testserver.Plan{Interval: s}, 7, 3},
		{"stream, stalled", stream, testserver.Plan{Ending: testserver.Hang, After: 2}, 7, 2},
		{"stream, held back by flow control", unread, testserver.Plan{}, 7, -1},
		{"stream that sent no request", silent, testserver.Plan{}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, testserver.Config{Script: always(tt.plan)}, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
				ctx, cancel := context.WithCancel(t.Context())
				start := time.Now()
				time.AfterFunc(2500*ms, cancel)
				tt.call(ctx, client)
				if err := cluster.WaitIdle(t.Context()); err != nil {
					t.Fatal(err)
				}
				r := cluster.Records()[0]
				if got := r.Cancelled.Sub(start); !r.WasCancelled() || got != 2500*ms {
					t.Errorf("cancelled after %v, want 2.5s: %+v", got, r)
				}
				if got := len(r.Sent); got != tt.sent && (tt.sent >= 0 || got == 0 || got == 100) {
					t.Errorf("sent %d messages before, want %d", got, tt.sent)
				}
				if r.ID != tt.id {
					t.Errorf("recorded as request %d, want %d", r.ID, tt.id)
				}
				want := testserver.Counts{Attempts: 1, Cancelled: 1, Messages: int64(len(r.Sent))}
				if got := cluster.Counts(); got != want {
					t.Errorf("counted %+v, want %+v", got, want)
				}
			})
		})
	}
}

func TestAFailureIsNoCancel(t *testing.T) {
	for name, plan := range map[string]testserver.Plan{
		"status":     {Code: codes.Canceled},
		"connection": {Ending: testserver.CloseConn},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testserver.Config{Script: always(plan)}, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
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
