package debug

import (
	"fmt"
	"github.com/grpchedge/hedge/internal/settings"
	"strings"
	"time"

	"github.com/grpchedge/hedge/stats"
)

// mostNamed is how many silent backends, or rules, are named.
const mostNamed = 5

// pausedSentence says that calls are not hedged, and by what.
func pausedSentence(by string) string {
	switch by {
	case "HEDGE_DISABLED":
		return "Hedging is paused by the environment variable HEDGE_DISABLED, until Resume is called."
	case "PauseTarget":
		return "Hedging is paused for this target by PauseTarget, until ResumeTarget is called."
	case "PauseMethod":
		return "Hedging is paused for this method by PauseMethod, until ResumeMethod is called."
	}
	return fmt.Sprintf("Hedging is paused by %s, until Resume is called.", by)
}

// targetNotes returns what an operator should know of the method's target, and of what the guard does to the method.
func targetNotes(t stats.Method, now time.Time) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if g := t.Guard; g.Reason != stats.GuardNone {
		add("The guard has held hedges back %s: %s. The share is %s now.", lasting(g.Since, now), g.Reason, percent(g.Share))
	}
	if r := t.Resets; r.Mode == stats.ResetsLearned {
		add("No losing attempt has been reset %s: the server says that there were too many resets. Losers run to their end. Resets are tried again in %s.",
			lasting(r.Since, now), short(r.Until.Sub(now).Round(time.Second)))
	}
	for i, b := range t.Silent {
		if i == mostNamed {
			add("Further silent backends: %s.", count(int64(len(t.Silent)-i)))
			break
		}
		add("%s has been silent %s, on %s: calls there are late, and primaries avoid it.",
			plain(b.Address), lasting(b.Since, now), plural(int64(b.Connections), "connection"))
	}
	switch {
	case t.SingleBackend():
		add("Only one backend is ready, so a hedge cannot go to another one.")
	case t.SingleConnection:
		add("Hedges go over the connection of the primary, so they meet the backend that is slow: package balancer says how to change it.")
	}
	return notes
}

// nothingSelected says that no call of a target was selected, as hedge.WithLogger does.
func nothingSelected(n settings.NothingSelected) string {
	names := make([]string, 0, len(n.Methods))
	for _, m := range n.Methods {
		names = append(names, plain(m))
	}
	seen := strings.Join(names, ", ")
	if n.More > 0 {
		seen += fmt.Sprintf(", and %s more", count(int64(n.More)))
	}
	return strings.ToUpper(n.Why[:1]) + n.Why[1:] + ". Methods seen: " + seen + "."
}

// targetFigures are the numbers of a method's target and of its guard, where there are any.
func targetFigures(t stats.Method, now time.Time) (f []figure) {
	add := func(name, format string, args ...any) { f = append(f, figure{name, fmt.Sprintf(format, args...)}) }
	add("budget", "%.1f of %.1f tokens", t.Tokens, t.Burst)
	if t.Saved >= 0.05 {
		add("budget saved for hedges that win", "%.1f tokens", t.Saved)
	}
	if t.Guard.Reason != stats.GuardNone {
		add("guard", "%s of due hedges, %s", percent(t.Guard.Share), lasting(t.Guard.Since, now))
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
		add("silent backends", "%d, the first %s", len(t.Silent), lasting(t.Silent[0].Since, now))
	}
	if t.Moved > 0 {
		add("primaries moved past silent connections", "%s", count(t.Moved))
	}
	if len(t.Rules) > 0 {
		add("rules in force", "%s", ruleNames(t.Rules))
	}
	return f
}

func ruleNames(rules []string) string {
	names := make([]string, 0, mostNamed+1)
	for i, rule := range rules {
		if i == mostNamed {
			names = append(names, fmt.Sprintf("and %d more", len(rules)-i))
			break
		}
		names = append(names, plain(rule))
	}
	return strings.Join(names, ", ")
}

// lasting says for how long something has been so.
func lasting(since, now time.Time) string { return "for " + short(now.Sub(since)) }
