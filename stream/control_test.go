package stream_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestControl_TimeToFirstMessage lets hedges win in every way, and counts both groups by what their callers waited for.
func TestControl_TimeToFirstMessage(t *testing.T) {
	longtest.Simulation(t)
	const calls = 200
	primary, hedged := testserver.Plan{Delay: time.Second, Messages: 1}, testserver.Plan{HeaderAtOnce: true, Delay: 100 * ms, Messages: 1}
	for _, tc := range []struct {
		name                string
		wait                func(st grpc.ServerStreamingClient[testpb.Reply])
		empty               bool
		hedgeable, unhedged time.Duration // 0: not counted
	}{
		{"the message", func(grpc.ServerStreamingClient[testpb.Reply]) {}, false, 110 * ms, time.Second},
		{"the headers, and then the message", func(st grpc.ServerStreamingClient[testpb.Reply]) { _, _ = st.Header() }, false, 110 * ms, time.Second},
		{"the headers of an empty stream", func(st grpc.ServerStreamingClient[testpb.Reply]) { _, _ = st.Header() }, true, 110 * ms, time.Second},
		{"the headers of an empty stream, and its end late", func(st grpc.ServerStreamingClient[testpb.Reply]) {
			_, _ = st.Header()
			time.Sleep(time.Second)
		}, true, 110 * ms, time.Second},
		{"the message, late", func(grpc.ServerStreamingClient[testpb.Reply]) { time.Sleep(600 * ms) }, false, 0, 0},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			primary, hedged := primary, hedged
			primary.Empty, hedged.Empty, hedged.HeaderAtOnce = tc.empty, tc.empty, !tc.empty
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(primary, hedged)})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithControl(50))
			client := dial(t, cluster, s)
			for id := range uint64(calls) {
				st, err := client.ServerStream(t.Context(), &testpb.Request{Id: id})
				if err != nil {
					t.Fatal(err)
				}
				tc.wait(st)
				if _, _, err := receive(st, &testpb.Request{Id: id}); err != nil {
					t.Fatal(err)
				}
			}
			row := s.Methods()[0]
			for name, check := range map[string]struct {
				calls int64
				p99   stats.Interval
				took  time.Duration
				drawn int64
			}{
				"hedgeable": {row.Gain.Calls, row.Gain.Hedged, tc.hedgeable, row.Hedged},
				"unhedged":  {row.Gain.Control, row.Gain.Unhedged, tc.unhedged, calls - row.Hedged},
			} {
				if check.took == 0 {
					check.drawn = 0
				}
				if check.calls != check.drawn || check.took > 0 && !within(check.p99.Value, check.took, 0.02) {
					t.Errorf("%s: %d calls, p99 %v; want %d and %v", name, check.calls, check.p99.Value, check.drawn, check.took)
				}
			}
			if row.Hedged < calls/4 || row.Hedged > calls*3/4 {
				t.Errorf("%d of %d calls hedged", row.Hedged, calls)
			}
		})
	}
}
