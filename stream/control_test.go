package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestControl_TimeToFirstMessage ends calls in every way, and compares the latency of both groups
// with the callers' wait. A call that ended with its race for headers counts too, because no event
// follows.
func TestControl_TimeToFirstMessage(t *testing.T) {
	longtest.Simulation(t)
	const calls = 200
	primary, hedged := testserver.Plan{Delay: time.Second, Messages: 1},
		testserver.Plan{HeaderAtOnce: true, Delay: 100 * ms, Messages: 1}
	empty, emptyHedge := testserver.Plan{Delay: time.Second, Empty: true}, testserver.Plan{Delay: 100 * ms, Empty: true}
	for _, tc := range []struct {
		name                string
		primary, hedge      testserver.Plan
		header              bool          // Header is called before
		late                time.Duration // when the caller asks for the message after that
		gone                time.Duration // when it gives up; 0: never
		hedgeable, unhedged time.Duration // 0: not counted; -1: counted, of unknown latency
	}{
		{name: "the message", primary: primary, hedge: hedged, hedgeable: 110 * ms, unhedged: time.Second},
		{name: "the headers, and then the message", primary: primary, hedge: hedged, header: true, hedgeable: 110 * ms,
			unhedged: time.Second},
		{name: "the headers of an empty stream, and its end late", primary: empty, hedge: emptyHedge, header: true,
			late: time.Second, hedgeable: 110 * ms, unhedged: time.Second},
		{name: "the headers of an empty primary", primary: emptyHedge, hedge: slow(), header: true, hedgeable: 100 * ms,
			unhedged: 100 * ms},
		{name: "the message, late", primary: primary, hedge: hedged, late: 600 * ms},
		{name: "the headers, and the caller gives up", primary: slow(), hedge: slow(), header: true, gone: 50 * ms,
			hedgeable: -1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithControl(50), hedge.WithGuard(false))
			_, client := inMemory(t, s, tc.primary, tc.hedge)
			for id := range uint64(calls) {
				ctx, cancel := context.WithCancel(t.Context())
				st := open(ctx, t, client, &testpb.Request{Id: id})
				if tc.gone > 0 {
					time.AfterFunc(tc.gone, cancel) // no deadline: it would end the server's attempt too
				}
				if tc.header {
					_, _ = st.Header()
				}
				time.Sleep(tc.late)
				if ctx.Err() == nil {
					if _, _, err := receive(st, &testpb.Request{Id: id}); err != nil {
						t.Fatal(err)
					}
				}
				cancel()
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
