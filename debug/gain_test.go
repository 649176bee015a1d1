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
	const control = "Control group: 1,234 calls never hedged. It also shows what hedges do to the queues of servers."
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
		spans  []string
		bars   int
		says   []string
		not    []string
	}{
		{"nothing", stats.Method{}, nil, 0, nil, []string{"ontrol group"}},
		{"control group", stats.Method{Gain: &gain},
			[]string{"with hedging: 54 ms (52 ms to 57 ms)", "without, control group: 210 ms (180 ms to 260 ms)"}, 2, []string{control,
				"<li>In the last 30 minutes p99 was 54ms (52ms to 57ms) with hedging, and 210ms (180ms to 260ms) in the control group, which is never hedged. " +
					"Hedging saved 3ms (2ms to 4ms) a call, 60ms a hedge, and sent 5.0% more of them. It also shows",
				`<th scope="row">calls in the control group</th><td>1,234 of 99,999</td>`},
			[]string{"estimate from primaries"}},
		{"few calls", stats.Method{Gain: &few}, nil, 0, []string{"The control group is too small so far: 1,234 calls of it ended in the last 30 min."},
			[]string{"Control group:"}},
		{"no control group", stats.Method{Learned: stats.Learned{Choice: stats.Choice{UnhedgedTail: ms, CutShort: 0.2}}}, nil, 0,
			[]string{"an estimate from primaries, 20.0% of them cut short: a lower bound where requests differ. WithControl(1) measures it."}, nil},
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
			says(t, page, tc.says...)
			doesNotSay(t, page, tc.not...)
		})
	}
}
