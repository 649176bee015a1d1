package debug_test

import (
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/stats"
)

// TestText_OfATarget checks the text for states of a target, and that it is empty without them.
func TestText_OfATarget(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	silent := func(connections int, since time.Duration, addresses ...string) stats.Method {
		b := stats.Backends{Ready: 3, Connections: 6, Moved: 4321}
		for _, address := range addresses {
			b.Silent = append(b.Silent, stats.SilentBackend{Address: address, Connections: connections, Since: ago(since)})
		}
		return stats.Method{Backends: b}
	}
	within := func(value, low, high time.Duration) stats.Interval {
		return stats.Interval{Value: value * ms, Low: low * ms, High: high * ms}
	}
	gain := stats.Gain{
		Over: 30 * time.Minute, Calls: 98765, Control: 1234, Measured: true, Load: 0.05,
		Hedged: within(54, 52, 57), Unhedged: within(210, 180, 260), Saved: within(3, 2, 4),
		SavedPerHedge: within(60, 40, 80),
	}
	few := gain
	few.Measured = false
	hedged := few
	hedged.Calls = 22
	for _, tc := range []struct {
		name      string
		stats     stats.Method
		want, not []string
	}{
		{name: "control group", stats: stats.Method{Gain: &gain},
			want: []string{"- Last 30 minutes: p99 was 54ms (95% CI 52ms to 57ms) with " +
				"hedging, 210ms (180ms to 260ms) in the unhedged control group. Hedging saved 3ms (2ms to 4ms) per call, " +
				"60ms per hedge, for 5.0% more calls.", "1,234 of 99,999"}, not: []string{"an estimate"}},
		{name: "small control group", stats: stats.Method{Gain: &few},
			want: []string{"The control group is still too small: 1,234 calls in the last 30 min."},
			not:  []string{"Last 30 minutes"}},
		{name: "few hedged calls", stats: stats.Method{Gain: &hedged},
			want: []string{"The group that may be hedged is still too small: " +
				"22 calls in the last 30 min. Measuring a gain takes at least ten minutes, and 500 calls of each group."}},
		{name: "no call yet", stats: stats.Method{Gain: &stats.Gain{}}, not: []string{"too small"}},
		{name: "no control group",
			stats: stats.Method{Learned: stats.Learned{Choice: stats.Choice{UnhedgedTail: ms, CutShort: 0.2}}},
			want:  []string{"The tail without hedging is an estimate from calls that were not hedged, some of them by chance."}},
		{name: "unknown tail", stats: stats.Method{Learned: stats.Learned{Choice: stats.Choice{CutShort: 0.2}}},
			want: []string{"The tail without hedging is unknown: too few slow calls were not hedged. WithControl(1) measures it."}},
		{name: "nothing", stats: stats.Method{Guard: stats.Guard{Share: 1}},
			not: []string{"ontrol group", "guard", "resets", "silent", "saved", "rules", "moved", "backends", "paused", "- "}},
		{name: "guard",
			stats: stats.Method{Guard: stats.Guard{Share: 0.25, Since: ago(90 * time.Second), Reason: "hedges failed"}},
			want:  []string{"- The guard has held hedges back for 1.5 min: hedges failed. The share is now 25.0%."}},
		{name: "resets learned",
			stats: stats.Method{Resets: stats.Resets{Learned: 50, Since: ago(2 * time.Second), Until: ago(-118 * time.Second)}},
			want:  []string{"at most 50 hedges per minute are sent. The limit rises over the next 1.97 min."}},
		{name: "resets set", stats: stats.Method{Resets: stats.Resets{Limit: 100, Per: time.Second}},
			want: []string{"100 in 1 s"}, not: []string{"- "}},
		{name: "silent", stats: silent(4, 12*time.Second, "10.0.0.2:443\x1b[2J"), want: []string{
			`- "10.0.0.2:443\x1b[2J" has been silent for 12 s, on 4 connections: calls`, "4,321",
			"3, over 6 connections"}, not: []string{"\x1b", "Only one backend"}},
		{name: "many silent", stats: silent(1, time.Second, "A", "B", "C", "D", "E", "F", "G"),
			want: []string{"- E has been silent for 1 s, on 1 connection:", "- Further silent backends: 2."},
			not:  []string{"- F has"}},
		{name: "destinations", stats: stats.Method{Destinations: []string{"dns:///us", "B\x1b[2J"}},
			want: []string{"- Hedges go to dns:///us, \"B\\x1b[2J\"."}, not: []string{"\x1b"}},
		{name: "no policy", stats: stats.Method{Method: "/s/M", Counts: stats.Counts{Hedges: 1}},
			want: []string{"- No ready connection has the policy hedge_other_backend"}},
		{name: "no policy, and a function", stats: stats.Method{Method: "f", Counts: stats.Counts{Hedges: 1}},
			not: []string{"hedge_other_backend"}},
		{name: "no policy, and a destination", not: []string{"hedge_other_backend"}, stats: stats.Method{Method: "/s/M",
			Counts: stats.Counts{Hedges: 1}, Destinations: []string{"dns:///us"}}},
		{name: "the backend of the primary", want: []string{"- Hedges go to the address of the primary."},
			not: []string{"Only one backend", "hedge_other_backend"}, stats: stats.Method{Method: "/s/M",
				Counts:   stats.Counts{Hedges: 16, SameBackend: 15},
				Backends: stats.Backends{Ready: 3, Connections: 3}}},
		{name: "a backend each", not: []string{"address of the primary"}, stats: stats.Method{Method: "/s/M",
			Counts:   stats.Counts{Hedges: 1112, SameBackend: 15},
			Backends: stats.Backends{Ready: 3, Connections: 3}}},
		{name: "single backend", want: []string{"- Only one backend is ready"}, not: []string{"Hedges go"},
			stats: stats.Method{Method: "/s/M", Counts: stats.Counts{Hedges: 20, SameBackend: 20},
				Backends: stats.Backends{Ready: 1, Connections: 1}}},
		{name: "saved", stats: stats.Method{Budget: stats.Budget{Tokens: 3, Burst: 8, Saved: 12.25}},
			want: []string{"3.0 of 8.0 tokens", "12.2 tokens"}},
		{name: "too many methods", stats: stats.Method{Method: "(other)", Counts: stats.Counts{Calls: 1, Off: 1}},
			want: []string{"beyond the limit of WithMaxMethods"}},
		{name: "rules", stats: stats.Method{Rules: []string{"/s/*", "dns:///eu-*", "c", "d", "e", "f"}},
			want: []string{"/s/*, dns:///eu-*, c, d, e, and 1 more"}},
		{name: "all fail", stats: stats.Method{Counts: stats.Counts{Calls: 9000},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Failed: 1203, FailedHedged: 31}, Over: 75 * time.Second}},
			want: []string{"    All calls of the last 1.25 min failed: 1,203, 31 of them with a hedge. The method"}},
		{name: "some fail", stats: stats.Method{PausedBy: "Pause",
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Failed: 12}, Over: time.Minute}},
			want: []string{"    1.0% of calls of the last 1 min failed: 12 of 1,200. Hedging is paused",
				"failed calls, last 1 min\t12 of 1,200, 0 with a hedge"}},
		{name: "few fail", stats: stats.Method{PausedBy: "Pause",
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1201, Failed: 12}, Over: time.Minute}},
			want: []string{"    Hedging is paused", "failed calls, last 1 min"}},
		{name: "busy", stats: stats.Method{Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 500, ClientBusy: 40, Hedges: 3}, Over: time.Minute,
				P99: 90 * ms}},
			want: []string{"    This process is short of processor time, so hedges are held back: 40, and 3 sent, in the last 1 min. " +
				"Otherwise: A call that lasts 8 ms", "- Goroutines of this process wait", "p99 of callers\t90 ms"}},
		{name: "hardly busy", stats: stats.Method{Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 500, ClientBusy: 40, Hedges: 41}, Over: time.Minute}},
			want: []string{"    A call that lasts 8 ms"}, not: []string{"processor"}},
		{name: "in the past", stats: stats.Method{Counts: stats.Counts{Calls: 99999, Hedges: 9000, TurnedAway: 4000,
			PrimaryWins: 5000, ClientBusy: 9000, UnknownOption: 90, SameBackend: 9000, BudgetExhausted: 9, Failed: 9000},
			Budget: stats.Budget{Burst: 3}, Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Hedges: 9}, Over: time.Minute}},
			want: []string{"    A call that lasts 8 ms"}, not: []string{"    - ", "failed calls, last"}},
		{name: "lately", stats: stats.Method{Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Hedges: 100, TurnedAway: 80, PrimaryWins: 20},
				Over: time.Minute}},
			want: []string{"- In the last 1 min hedges answered 0.0% of calls with a served hedge",
				"- In the last 1 min servers turned 80 of 100 hedges away"}},
		{name: "paused by the switch", stats: stats.Method{PausedBy: "HEDGE_DISABLED"},
			want: []string{"paused by the environment variable HEDGE_DISABLED"}},
	} {
		text := debug.Text(tc.stats, now)
		says(t, text, tc.want...)
		for _, not := range tc.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: want no %q in\n%s", tc.name, not, text)
			}
		}
	}
}
