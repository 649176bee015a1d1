package debug_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/stats"
)

// TestPage_Gain looks at what is said of what was measured with and without hedging.
func TestPage_Gain(t *testing.T) {
	within := func(value, low, high time.Duration) stats.Interval {
		return stats.Interval{Value: value * ms, Low: low * ms, High: high * ms}
	}
	gain := stats.Gain{
		Over: 30 * time.Minute, Calls: 98765, Control: 1234, Measured: true, Percentile: 99, Load: 0.05,
		Hedged: within(54, 52, 57), Unhedged: within(210, 180, 260), Saved: within(3, 2, 4), SavedPerHedge: within(60, 40, 80),
	}
	few := gain
	few.Measured = false
	for _, tc := range []struct {
		name   string
		method stats.Method
		says   []string
		not    []string
	}{
		{"nothing", stats.Method{}, nil, []string{"ontrol group"}},
		{"control group", stats.Method{Gain: &gain},
			[]string{"<li>In the last 30 minutes p99 was 54ms (52ms to 57ms) with hedging, and 210ms (180ms to 260ms) in the control group, which is never hedged. " +
				"Hedging saved 3ms (2ms to 4ms) a call, 60ms a hedge, and sent 5.0% more of them. It also shows what hedges do to the queues of servers.",
				`<th scope="row">calls in the control group</th><td>1,234 of 99,999</td>`},
			[]string{"estimate from primaries"}},
		{"few calls", stats.Method{Gain: &few}, []string{"The control group is too small so far: 1,234 calls of it ended in the last 30 min."},
			[]string{"In the last 30 minutes"}},
		{"no control group", stats.Method{Learned: stats.Learned{Choice: stats.Choice{UnhedgedTail: ms, CutShort: 0.2}}},
			[]string{"an estimate from primaries, 20.0% of them cut short: a lower bound where requests differ. WithControl(1) measures it."}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := debug.Page(tc.method, time.Unix(1_800_000_000, 0))
			says(t, page, tc.says...)
			doesNotSay(t, page, tc.not...)
		})
	}
}
