package debug

import (
	"fmt"
	"github.com/grpchedge/hedge/internal/settings"
	"math"
	"strings"
	"time"

	"github.com/grpchedge/hedge/stats"
)

// sentence says what is in force for a method, and why.
func sentence(t stats.Method, config settings.Config) string {
	c := t.Choice
	switch {
	case t.PausedBy != "":
		return pausedSentence(t.PausedBy)
	case t.Calls == 0 && t.PassedThrough > 0:
		return "Client-streaming or bidirectional calls are never hedged."
	case t.Calls > 0 && t.NotSelected == t.Calls:
		return "No option selects this method, so it is not hedged and nothing is learned of it."
	case t.Calls > 0 && t.NoDescriptor == t.Calls:
		return "The method's descriptor is not linked into the program, so WithIdempotentOnly does not select it."
	case t.Calls > 0 && t.Off == t.Calls:
		return "All calls of this method have the option Off or WithOff, so none is hedged."
	case (config.MaxHedges == 0 || config.BudgetPercent == 0) && t.Hedges == 0:
		return "The options allow no hedges; latencies are learned all the same."
	case t.Delay == 0 && t.Warmup > 0:
		return fmt.Sprintf("The method is being learned: %s seen.", plural(t.Calls, "call"))
	case c.SteppedDown != stats.NotSteppedDown:
		return "Hedging has stepped down: " + c.WhySteppedDown() + "."
	}
	var b strings.Builder
	most := config.MaxHedges
	if c.MaxHedges > 0 {
		most = c.MaxHedges
	}
	if config.DryRun {
		b.WriteString("This is a dry run, and no hedge is sent. Without WithDryRun: ")
	}
	if t.Delay == 0 {
		fmt.Fprint(&b, "All hedges of a call are due at once")
	} else {
		fmt.Fprintf(&b, "A call that lasts %s gets a hedge", short(t.Delay))
	}
	switch {
	case t.Delay == 0:
	case most == 2:
		fmt.Fprintf(&b, ", and another %s later", short(t.Delay))
	case most > 2:
		fmt.Fprintf(&b, ", and up to %d more at steps of %s", most-1, short(t.Delay))
	}
	if c.Probability > 0 && c.Probability < 0.995 {
		fmt.Fprintf(&b, "; %.0f of 100 that are due are sent", 100*c.Probability)
	}
	b.WriteString(".")
	if c.UnhedgedTail > 0 && c.MeasuredTail > 0 {
		fmt.Fprintf(&b, " The tail is %s; without hedging it would be about %s%s.", short(c.MeasuredTail), short(c.UnhedgedTail), orMore(c))
	}
	return b.String()
}

// notes returns what an operator should know beside the sentence.
func notes(t stats.Method, now time.Time) []string {
	var n []string
	add := func(format string, args ...any) { n = append(n, fmt.Sprintf(format, args...)) }
	if t.Burst > 0 && t.Tokens < 1 && t.BudgetExhausted > 0 {
		add("The target's budget is empty: hedges that are due wait for it.")
	}
	if t.ThrottleMax > 0 && 2*t.ThrottleTokens <= t.ThrottleMax {
		add("The target is throttled: %.1f of %.0f tokens are left, and no hedge is sent until more than half are.", t.ThrottleTokens, t.ThrottleMax)
	}
	if t.NoBackendPolicy {
		add("WithOtherBackendOnly holds hedges back: the connection has no policy hedge_other_backend.")
	}
	n = append(n, targetNotes(t, now)...)
	if won := t.HedgeWins + t.PrimaryWins; won >= 100 && t.HedgeWins*20 < won {
		add("Hedges answered %.1f%% of hedged calls: a second attempt is hardly faster than waiting.", 100*float64(t.HedgeWins)/float64(won))
	}
	switch c := t.Choice; {
	case c.UnhedgedTailFrom == stats.FromControlGroup:
		add("The tail without hedging is an estimate, from the control group.")
	case c.IsLowerBound():
		add("The tail without hedging is an estimate, from primaries, %.1f%% of them cut short: a lower bound where requests differ.", 100*c.CutShort)
	case c.UnhedgedTailFrom == stats.FromPrimaries:
		add("The tail without hedging is an estimate, from primaries, none of them cut short.")
	}
	return n
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

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// count formats a number with commas.
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

// orMore says that an estimate may be too low.
func orMore(c stats.Choice) string {
	if c.IsLowerBound() {
		return " or more"
	}
	return ""
}
