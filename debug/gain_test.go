package debug_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/stats"
)

// TestPage_Gain looks at the picture of what was measured with and without hedging, and at what is said beside it.
func TestPage_Gain(t *testing.T) {
	const (
		followUp = "Follow-up: 412 losers ran to the end. It does not show what hedges do to the queues of servers."
		control  = "Control group: 1,234 calls never hedged. It also shows what hedges do to the queues of servers."
	)
	within := func(value, low, high time.Duration) stats.Interval {
		return stats.Interval{Value: value * ms, Low: low * ms, High: high * ms}
	}
	gain := stats.Gain{Over: 10 * time.Minute, Measured: true, Followed: 412, Percentile: 99, Unhedged: within(206, 198, 214), Hedged: 53 * ms,
		Load: 0.087, Helped: 0.031, Saved: 4500 * time.Microsecond, SavedPerHedge: 52 * ms, SavedPerHelped: 145 * ms, SavedNothing: 0.4}
	farther, estimate, unbounded := gain, gain, gain
	farther.Percentile = 100 * 0.999
	estimate.Measured = false
	unbounded.Unhedged = within(206, 0, 0)
	groups := &stats.Control{
		Hedgeable: stats.Group{Calls: 98765, P99: within(54, 52, 57)},
		Unhedged:  stats.Group{Calls: 1234, P99: within(210, 180, 260), P999: within(400, 300, 900)},
	}
	for _, tc := range []struct {
		name   string
		method stats.Method
		spans  []string
		bars   int
		says   []string
		not    []string
	}{
		{"nothing", stats.Method{}, nil, 0, nil, []string{"Follow-up", "ontrol group"}},
		{"an estimate", stats.Method{Gain: estimate}, nil, 0, nil, []string{"Follow-up"}},
		{"follow-up", stats.Method{Gain: gain}, []string{"with hedging: 53 ms", "without, follow-up: 206 ms (198 ms to 214 ms)"}, 1,
			[]string{followUp, "p99 with and without hedging", "<li>In the last ten minutes hedging took p99 from 206ms (198ms to 214ms) to 53ms",
				"<td>4.5 ms, 52 ms</td>", "<td>40.0%</td>"}, []string{"ontrol group"}},
		{"follow-up without an interval", stats.Method{Gain: unbounded}, []string{"with hedging: 53 ms", "without, follow-up: 206 ms"}, 0, nil, nil},
		{"control group", stats.Method{Control: groups},
			[]string{"with hedging: 54 ms (52 ms to 57 ms)", "without, control group: 210 ms (180 ms to 260 ms)"}, 2, []string{control,
				"<li>In the last ten minutes p99 was 54 ms, and in the control group, which is never hedged, 210 ms (180 ms to 260 ms). It also shows"},
			[]string{"Follow-up"}},
		{"both", stats.Method{Gain: gain, Control: groups},
			[]string{"with hedging: 53 ms", "without, follow-up: 206 ms (198 ms to 214 ms)", "without, control group: 210 ms (180 ms to 260 ms)"}, 2,
			[]string{followUp, control}, nil},
		{"both, p99.9", stats.Method{Gain: farther, Control: groups},
			[]string{"with hedging: 53 ms", "without, follow-up: 206 ms (198 ms to 214 ms)", "without, control group: 400 ms (300 ms to 900 ms)"}, 2,
			[]string{"p99.9 with and without hedging"}, nil},
		{"stepped down", stats.Method{Gain: gain, Choice: stats.Choice{SteppedDown: stats.LittleToGain, UnhedgedTailFrom: stats.FromFollowUp,
			UnhedgedTail: 206 * ms, PredictedTail: 300 * ms, MeasuredTail: 53 * ms}}, []string{"with hedging: 53 ms", "without, follow-up: 206 ms (198 ms to 214 ms)"}, 1,
			[]string{"Hedging has stepped down: hedging would improve the tail too little to pay for."}, []string{"300"}},
		{"few unhedged", stats.Method{Control: &stats.Control{Unhedged: stats.Group{Calls: 9, P99: within(9, 0, 0)}}}, nil, 0, nil, []string{"Control group:"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := debug.Page(tc.method, time.Unix(1_800_000_000, 0))
			var spans []string
			for _, m := range regexp.MustCompile(`<g class="span[^>]*><text[^>]*>([^<]*)</text>`).FindAllStringSubmatch(page, -1) {
				spans = append(spans, m[1])
			}
			if got, want := strings.Join(spans, "; "), strings.Join(tc.spans, "; "); got != want {
				t.Errorf("the picture has %q, want %q", got, want)
			}
			bars := regexp.MustCompile(`<path d="M([\d.]+) 0H([\d.]+)M[^>]*/><circle cx="([\d.]+)"`).FindAllStringSubmatch(page, -1)
			for _, m := range bars {
				low, _ := strconv.ParseFloat(m[1], 64)
				high, _ := strconv.ParseFloat(m[2], 64)
				if at, err := strconv.ParseFloat(m[3], 64); err != nil || low < 48 || at <= low || high <= at || high > 338 {
					t.Errorf("an interval is drawn from %v to %v around %v", low, high, at)
				}
			}
			if len(bars) != tc.bars {
				t.Errorf("%d intervals, want %d", len(bars), tc.bars)
			}
			for _, want := range tc.says {
				if !strings.Contains(page, want) {
					t.Errorf("no %q in\n%s", want, page)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(page, not) {
					t.Errorf("%q in\n%s", not, page)
				}
			}
		})
	}
}
