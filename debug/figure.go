package debug

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/grpchedge/hedge/stats"
)

// figure is a name and a value to show.
type figure struct{ Name, Value string }

// Figures are the numbers of a method, and of its target, that fit on a line each.
func (r row) Figures() (f []figure) {
	t, c := r.Stats, r.Stats.Choice
	add := func(name, format string, args ...any) { f = append(f, figure{name, fmt.Sprintf(format, args...)}) }
	add("calls", "%s", count(t.Calls))
	add("hedges", "%s (%s of calls)", count(t.Hedges), percent(t.HedgeRate()))
	add("won by a hedge", "%s of %s hedged calls", count(t.HedgeWins), count(t.Hedged))
	add("delay", "%s", short(t.Delay))
	add("p50, p90, p99 of primaries", "%s, %s, %s", short(t.P50), short(t.P90), short(t.P99))
	if c.Probability > 0 {
		add("probability", "%.2f", c.Probability)
		add("hedges of a call, at most", "%d", c.MaxHedges)
		add("tail measured, predicted", "%s, %s", short(c.MeasuredTail), short(c.PredictedTail))
		add("tail without hedging ("+tailFrom(c)+")", "%s", short(c.UnhedgedTail))
		add("wins lately, predicted", "%s, %s", percent(c.MeasuredWins), percent(c.PredictedWins))
		add("load predicted", "%s", percent(c.PredictedLoad))
	}
	if g := t.Gain; g.Measured {
		add("saved per call, per hedge", "%s, %s", short(g.Saved), short(g.SavedPerHedge))
		add("hedged calls that saved nothing", "%s", percent(g.SavedNothing))
	}
	add("budget", "%.1f of %.1f tokens", t.Tokens, t.Burst)
	if t.Saved >= 0.05 {
		add("budget saved for hedges that win", "%.1f tokens", t.Saved)
	}
	if t.Guard.Reason != stats.GuardNone {
		add("guard", "%s of due hedges, %s", percent(t.Guard.Share), lasting(t.Guard.Since, r.at))
	}
	if t.ThrottleMax > 0 {
		add("throttle", "%.1f of %.0f tokens", t.ThrottleTokens, t.ThrottleMax)
	}
	if r := t.Resets; r.Per > 0 {
		add("resets", "%s: at most %s in %s", r.Mode, count(int64(r.Limit)), short(r.Per))
	}
	if t.Resets.Left > 0 {
		add("losers that run to their end", "%s", count(int64(t.Resets.Left)))
	}
	switch {
	case t.Connections > t.Backends:
		add("backends ready", "%d, over %d connections", t.Backends, t.Connections)
	case t.Backends > 0:
		add("backends ready", "%d", t.Backends)
	}
	if len(t.Silent) > 0 {
		add("silent backends", "%d, the first %s", len(t.Silent), lasting(t.Silent[0].Since, r.at))
	}
	if t.Moved > 0 {
		add("primaries moved past silent connections", "%s", count(t.Moved))
	}
	if named := min(len(t.Rules), mostNamed); named > 0 {
		add("rules in force", "%s", list(t.Rules[:named], len(t.Rules)-named))
	}
	return f
}

// tailFrom says where the tail without hedging is from.
func tailFrom(c stats.Choice) string {
	if isMeasured(c) {
		return string(c.UnhedgedTailFrom)
	}
	return "estimate"
}

// helped is the share of hedged calls that a hedge answered.
func helped(won, lost int64) float64 {
	if won+lost == 0 {
		return 0
	}
	return float64(won) / float64(won+lost)
}

// named is a count with its name in words.
type named struct {
	Name  string
	Value int64
	Share float64 // of the greatest, for a bar
}

// shownElsewhere are the counts that otherCounts leaves out.
var shownElsewhere = map[string]bool{"Calls": true, "Hedged": true, "Hedges": true, "HedgeWins": true, "PrimaryWins": true}

var camel = regexp.MustCompile(`([a-z])([A-Z])`)

// otherCounts returns the counts above 0 that say why no hedge was sent, and the like.
func otherCounts(s stats.Counts) []named {
	var rows []named
	most := int64(1)
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if n, ok := v.Field(i).Interface().(int64); ok && n > 0 && !shownElsewhere[field.Name] {
			rows = append(rows, named{Name: strings.ToLower(camel.ReplaceAllString(field.Name, "$1 $2")), Value: n})
			most = max(most, n)
		}
	}
	for i := range rows {
		rows[i].Share = float64(rows[i].Value) / float64(most)
	}
	return rows
}
