package debug

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/grpchedge/hedge/stats"
)

type figure struct{ Name, Value string }

func (r row) Figures() (f []figure) {
	t, c, g := r.Stats, r.Stats.Choice, cmp.Or(r.Stats.Gain, &stats.Gain{})
	add := func(holds bool, name, format string, args ...any) {
		if holds {
			f = append(f, figure{name, fmt.Sprintf(format, args...)})
		}
	}
	chosen := c.Probability > 0
	lately := t.Recent
	add(lately.Failed > 0, "failed calls, last "+short(lately.Over), "%s of %s, %s with a hedge",
		count(lately.Failed), count(lately.Calls), count(lately.FailedHedged))
	add(lately.P99 > 0, "p99 of callers", "%s", short(lately.P99))
	add(true, "calls", "%s", count(t.Calls))
	add(true, "hedged calls", "%s, by %s", count(t.Hedged), plural(t.Hedges, "hedge"))
	add(true, "extra load", "%s", percent(t.HedgeRate()))
	add(true, "won by a hedge", "%s of %s %s", count(t.HedgeWins), count(t.HedgeWins+t.PrimaryWins), decided(t.Counts))
	add(t.Delay > 0, "delay", "%s", short(t.Delay))
	add(t.P50+t.P90+t.P99 > 0, "p50, p90, p99 without hedging", "%s, %s, %s",
		known(t.P50), known(t.P90), known(t.P99))
	add(chosen, "tail with hedging (prediction)", "%s", short(c.PredictedTail))
	add(chosen, "load predicted", "%s", percent(c.PredictedLoad))
	add(g.Control > 0, "calls in the control group", "%s of %s in %s",
		count(g.Control), count(g.Calls+g.Control), short(g.Over))
	add(true, "budget", "%.1f of %.1f tokens", t.Tokens, t.Burst)
	add(t.Saved >= 0.05, "savings, for hedges that win", "%.1f tokens", t.Saved)
	add(t.ThrottleMax > 0, "throttle", "%.1f of %.0f tokens", t.ThrottleTokens, t.ThrottleMax)
	add(t.Resets.Limit > 0,
		"hedge limit by WithHedgeLimit", "%s in %s", count(int64(t.Resets.Limit)), short(t.Resets.Per))
	add(t.Connections > t.Ready, "backends ready", "%d, over %d connections", t.Ready, t.Connections)
	add(t.Connections <= t.Ready && t.Ready > 0, "backends ready", "%d", t.Ready)
	add(t.Moved > 0, "primaries moved past silent connections", "%s", count(t.Moved))
	named := min(len(t.Rules), maxNamed)
	add(named > 0, "rules in force", "%s", list(t.Rules[:named], len(t.Rules)-named))
	return f
}

// decided names the calls that stats.Counts.WinRate is about.
func decided(c stats.Counts) string {
	if c.TurnedAway > 0 {
		return "calls with a served hedge"
	}
	return "hedged calls"
}

var camel = regexp.MustCompile(`([a-z])([A-Z])`)

// otherCounts returns the other counts above 0, such as the reasons why no hedge was sent.
func otherCounts(s stats.Counts) (rows []figure) {
	s.Calls, s.Hedged, s.Hedges, s.HedgeWins, s.PrimaryWins = 0, 0, 0, 0, 0
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if n := v.Field(i).Int(); n > 0 {
			name := camel.ReplaceAllString(v.Type().Field(i).Name, "$1 $2")
			rows = append(rows, figure{strings.ToLower(name), count(n)})
		}
	}
	return rows
}

// plain quotes a name that has control characters, because a terminal would obey them.
func plain(name string) string {
	if quoted := strconv.Quote(name); strings.Trim(quoted, `"`) != name {
		return quoted
	}
	return name
}

// short formats a duration with three significant digits.
func short(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(float64(d)))-2)
	d = time.Duration(math.Round(float64(d)/unit) * unit)
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= u.unit {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(u.unit), u.name)
		}
	}
	return fmt.Sprintf("%d ns", d)
}

func known(d time.Duration) string {
	if d == 0 {
		return "unknown"
	}
	return short(d)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

func lasting(since, now time.Time) string { return "for " + short(now.Sub(since)) }
