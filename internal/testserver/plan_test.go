package testserver_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestStreamPlan(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name   string
		plan   testserver.Plan
		header time.Duration   // when the headers were there
		at     []time.Duration // when each message came
		code   codes.Code
		end    time.Duration
	}{
		{"zero", testserver.Plan{}, 0, []time.Duration{0, 0, 0}, codes.OK, 0},
		{"headers with the first message", testserver.Plan{Delay: s, Interval: s},
			s, []time.Duration{s, 2 * s, 3 * s}, codes.OK, 3 * s},
		{"headers at once", testserver.Plan{Delay: s, Interval: s, HeaderAtOnce: true},
			0, []time.Duration{s, 2 * s, 3 * s}, codes.OK, 3 * s},
		{"another length", testserver.Plan{Interval: s, Messages: 2}, 0, []time.Duration{0, s}, codes.OK, s},
		{"empty", testserver.Plan{Delay: s, Empty: true}, s, nil, codes.OK, s},
		{"fails first", testserver.Plan{Delay: s, Code: codes.Unavailable}, s, nil, codes.Unavailable, s},
		{"fails midway", testserver.Plan{Interval: s, Code: codes.Internal, After: 2},
			0, []time.Duration{0, s}, codes.Internal, 2 * s},
		{"fails at its end", testserver.Plan{Interval: s, Code: codes.Internal, After: 9},
			0, []time.Duration{0, s, 2 * s}, codes.Internal, 3 * s},
		{"stalls", testserver.Plan{Interval: s, Ending: testserver.Hang, After: 2},
			0, []time.Duration{0, s}, codes.DeadlineExceeded, time.Minute},
		{"never starts", testserver.Plan{Ending: testserver.Hang, HeaderAtOnce: true},
			0, nil, codes.DeadlineExceeded, time.Minute},
		{"loses its connection", testserver.Plan{Delay: s, Interval: s, Ending: testserver.CloseConn, After: 1,
			HeaderAtOnce: true},
			0, []time.Duration{s}, codes.Unavailable, 2 * s},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, testserver.Config{Script: always(tt.plan)},
				func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					start := time.Now()
					req := &testpb.Request{Id: 7, Messages: 3, ReplyBytes: 10}
					stream, err := client.ServerStream(ctx, req)
					if err != nil {
						t.Fatal(err)
					}
					stream.Header()
					if got := time.Since(start); got != tt.header {
						t.Errorf("headers after %v, want %v", got, tt.header)
					}
					for i, want := range tt.at {
						reply, err := stream.Recv()
						if err != nil {
							t.Fatalf("message %d: %v", i, err)
						}
						if got := time.Since(start); got != want {
							t.Errorf("message %d after %v, want %v", i, got, want)
						}
						if err := testserver.Check(req, uint32(i), reply); err != nil {
							t.Error(err)
						}
					}
					_, err = stream.Recv()
					if errors.Is(err, io.EOF) {
						err = nil
					}
					if status.Code(err) != tt.code {
						t.Errorf("ended with %v, want %v", err, tt.code)
					}
					if got := time.Since(start); got != tt.end {
						t.Errorf("ended after %v, want %v", got, tt.end)
					}
					synctest.Wait()
					if got := len(cluster.Records()[0].Sent); got != len(tt.at) {
						t.Errorf("%d messages recorded as sent, want %d", got, len(tt.at))
					}
				})
		})
	}
}
