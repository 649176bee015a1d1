package debug

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// off has a sentence for each reason why the settings in force hedge no call of a method.
var off = map[stats.Reason]string{
	stats.NotSelected: "No option selects this method: see WithReadOnlyMethods. It is not hedged, and its latencies " +
		"are not learned, except for calls with the option After.",
	stats.NoDescriptor: "The method's descriptor is not linked into the program, " +
		"so WithIdempotentOnly does not select it: see WithReadOnlyMethods.",
	stats.SwitchedOff:        "All calls of this method have the option Off or WithOff, so none is hedged.",
	stats.NoHedgesConfigured: "The options allow no hedges. Latencies are still learned.",
	stats.InControlGroup:     "All calls are in the control group, so none is hedged. Latencies are still learned.",
}

// sentence describes what callers get, if that is wrong, and then how the calls of a method are
// hedged.
func sentence(t stats.Method, config *settings.Config, unhedged stats.Reason) string {
	return failing(t.Recent) + state(t, config, unhedged)
}

// failing begins a sentence if at least one recent call in a hundred failed.
func failing(r stats.Recent) string {
	if r.Failed == 0 || 100*r.Failed < r.Calls {
		return ""
	}
	var b strings.Builder
	if r.Failed >= r.Calls { // of calls in flight at the start, some ended later
		fmt.Fprintf(&b, "All calls of the last %s failed: %s", short(r.Over), count(r.Failed))
	} else {
		fmt.Fprintf(&b, "%s of calls of the last %s failed: %s of %s",
			percent(float64(r.Failed)/float64(r.Calls)), short(r.Over), count(r.Failed), count(r.Calls))
	}
	if r.FailedHedged > 0 {
		fmt.Fprintf(&b, ", %s of them with a hedge", count(r.FailedHedged))
	}
	return b.String() + ". "
}

// enough is the number of recent hedges, sent or held back, from which on their shares are looked
// at.
const enough = 10

// busy reports whether this process recently lacked the processor time for most of its hedges.
func busy(r stats.Recent) bool { return r.ClientBusy >= enough && r.ClientBusy > r.Hedges }

// mostly reports whether nine in ten hedges, or more, went to a used backend.
func mostly(c stats.Counts) bool { return 10*c.SameBackend >= 9*c.Hedges }

// state describes how the calls of a method are hedged, or why they are not.
func state(t stats.Method, config *settings.Config, unhedged stats.Reason) string {
	switch {
	case t.Method == registry.Other:
		return "These calls are of methods beyond the limit of WithMaxMethods. None is hedged."
	case t.PausedBy == "HEDGE_DISABLED":
		return "Hedging is paused by the environment variable HEDGE_DISABLED, until Resume is called."
	case t.PausedBy != "":
		return "Hedging is paused by Pause, until Resume is called."
	case t.Calls == 0 && t.Received > 0:
		return "No calls were made to this target, only hedges of calls to other targets."
	case t.Calls == 0 && t.PassedThrough > 0:
		return "Client-streaming or bidirectional calls are never hedged."
	case unhedged == stats.NotSelected && config.HTTP:
		return "No option selects these requests: " + settings.HTTPRule + "."
	case unhedged != stats.NoReason:
		return off[unhedged]
	case t.Calls > 0 && t.Off == t.Calls:
		return off[stats.SwitchedOff]
	case t.Unhedgeable != stats.NoReason && t.Hedged+t.DryRun == 0:
		return "Calls cannot be hedged: " + cannot[t.Unhedgeable]
	case t.Delay == 0 && (t.Warmup > 0 || t.Hedged+t.DryRun == 0):
		return fmt.Sprintf("The method is being learned: %s seen.", plural(t.Calls, "call"))
	}
	return active(t, config)
}

// active describes how the calls of a method are hedged, or would be without WithDryRun.
func active(t stats.Method, config *settings.Config) string {
	c := t.Choice
	var b strings.Builder
	if t.Unhedgeable != stats.NoReason {
		fmt.Fprintf(&b, "Most calls cannot be hedged: %s The others: ", cannot[t.Unhedgeable])
	}
	if r := t.Recent; busy(r) {
		fmt.Fprintf(&b, "This process is short of processor time, so hedges are held back: %s, and %s sent, in the last %s. "+
			"Otherwise: ", count(r.ClientBusy), count(r.Hedges), short(r.Over))
	}
	most := cmp.Or(c.MaxHedges, config.MaxHedges)
	if config.DryRun {
		b.WriteString("Dry run: no hedge is sent. Without WithDryRun: ")
	}
	b.WriteString(steps(short(t.Delay), t.Delay == 0, most))
	if c.Probability > 0 && c.Probability < 0.995 {
		fmt.Fprintf(&b, "; this holds for %.0f%% of calls", 100*c.Probability)
	}
	b.WriteString(".")
	late := busy(t.Recent) // late calls are not learned
	if config.Control > 0 && !config.DryRun {
		fmt.Fprintf(&b, " The control group, %g%% of calls, gets none.", config.Control)
	} else if t.Recent.P99 > 0 && (late || c.MaxHedges > 0) {
		fmt.Fprintf(&b, " The tail is %s", short(t.Recent.P99))
		if c.UnhedgedTail > 0 && !late {
			fmt.Fprintf(&b, "; without hedging it would be about %s", short(c.UnhedgedTail))
		}
		b.WriteString(".")
	}
	return b.String()
}

func steps(delay string, atOnce bool, n int) string {
	switch {
	case atOnce:
		return "All hedges of a call are due at once"
	case n == 2:
		return fmt.Sprintf("A call that lasts %s gets a hedge, and another %s later", delay, delay)
	case n > 2:
		return fmt.Sprintf("A call that lasts %s gets a hedge, and up to %d more at steps of %s", delay, n-1, delay)
	}
	return fmt.Sprintf("A call that lasts %s gets a hedge", delay)
}

var cannot = map[stats.Reason]string{
	stats.EarlyHeaders: "callers call Header first, and the headers arrive before the first message. " +
		"See hedge.WithWaitForMessage.",
	stats.UnknownOption: "a call option of theirs embeds an option of gRPC other than grpc.EmptyCallOption, or points " +
		"to one. Pass gRPC's option itself.",
	stats.NotReplayable: "their messages are not protobuf messages, or need a codec that hedging cannot use, " +
		"or their requests exceed 1 MiB. See interceptor.Unary. hedge.Do can hedge them.",
	stats.DeadlineNear: "their deadlines end before a hedge would answer.",
	stats.OfHedge:      "they are made on behalf of hedges.",
}

func notes(t stats.Method, config *settings.Config, now time.Time) (n hints) {
	g, r, lately := t.Guard, t.Resets, t.Recent
	over := short(lately.Over)
	n.add(lately.UnknownOption > 0, "%s of the last %s not hedged: %s", plural(lately.UnknownOption, "call"), over,
		cannot[stats.UnknownOption])
	n.add(busy(lately), "Goroutines of this process wait for a processor. Nothing is learned from calls that are late "+
		"meanwhile, so latencies without hedging and predictions are too low. The p99 of callers includes these calls.")
	n.add(t.Burst > 0 && t.Tokens < 1 && lately.BudgetExhausted > 0,
		"The target's budget is exhausted: due hedges are held back.")
	n.add(t.ThrottleMax > 0 && 2*t.ThrottleTokens <= t.ThrottleMax,
		"The target is throttled: %.1f of %.0f tokens are left, and hedges need more than half.",
		t.ThrottleTokens, t.ThrottleMax)
	to := make([]string, len(t.Destinations))
	for i, name := range t.Destinations {
		to[i] = plain(name)
	}
	n.add(len(to) > 0, "Hedges go to %s.", strings.Join(to, ", "))
	n.add(g.Reason != stats.GuardNone,
		"The guard has held hedges back %s: %s. The share is now %s.",
		lasting(g.Since, now), g.Reason, percent(g.Share))
	n.add(r.Learned > 0,
		"The server closed a connection for too many resets, and each hedge makes one: "+
			"at most %s per minute are sent. The limit rises over the next %s.",
		plural(int64(r.Learned), "hedge"), short(r.Until.Sub(now).Round(time.Second)))
	named := min(len(t.Silent), maxNamed)
	for _, b := range t.Silent[:named] {
		n.add(true, "%s has been silent %s, on %s: calls there are late, and primaries avoid it.",
			plain(b.Address), lasting(b.Since, now), plural(int64(b.Connections), "connection"))
	}
	n.add(len(t.Silent) > named, "Further silent backends: %s.", count(int64(len(t.Silent)-named)))
	n.add(t.Connections == 1, "Only one backend is ready, so a hedge cannot go to another one.")
	grpc := strings.HasPrefix(t.Method, "/") && !config.HTTP
	n.add(grpc && t.Ready == 0 && t.Hedges > t.TurnedAway && len(to) == 0,
		"No ready connection has the policy hedge_other_backend, so hedges may reach the backend of their primary: "+
			"see package balancer. A proxy that balances requests needs no policy.")
	elsewhere := "package balancer"
	if config.HTTP {
		elsewhere = "hedgehttp.WithHedgeTransport"
	}
	n.add(t.Connections != 1 && t.SameBackend >= 15 && mostly(t.Counts) && mostly(lately.Counts),
		"Hedges go to the address of the primary. If one server listens there, they reach the same slow backend: see %s.",
		elsewhere)
	n.add(lately.HedgeWins+lately.PrimaryWins >= enough && lately.WinRate() < 0.05,
		"In the last %s hedges answered %s of %s: a second attempt is hardly faster than waiting.",
		over, percent(lately.WinRate()), decided(lately.Counts))
	n.add(lately.TurnedAway >= enough && 10*lately.TurnedAway >= lately.Hedges,
		"In the last %s servers turned %s of %s away, because they were busy. Such a hedge costs a tenth of one.",
		over, count(lately.TurnedAway), plural(lately.Hedges, "hedge"))
	n.addEffect(t)
	return n
}

type hints []string

func (n *hints) add(holds bool, format string, args ...any) {
	if holds {
		*n = append(*n, fmt.Sprintf(format, args...))
	}
}

// addEffect adds hints on the tail without hedging, measured or estimated.
func (n *hints) addEffect(t stats.Method) {
	if t.Gain != nil {
		n.add(t.Gain.Measured, "%v This includes the effect of hedges on the queues of servers.", t.Gain)
		small, calls := "The control group is", t.Gain.Control
		if t.Gain.Calls < calls {
			small, calls = "The group that may be hedged is", t.Gain.Calls
		}
		n.add(!t.Gain.Measured && t.Gain.Over > 0, "%s still too small: %s in the last %s. "+
			"Measuring a gain takes at least ten minutes, and 500 calls of each group.",
			small, plural(calls, "call"), short(t.Gain.Over))
		return
	}
	n.add(t.Choice.UnhedgedTail > 0,
		"The tail without hedging is an estimate from calls that were not hedged, some of them by chance.")
	n.add(t.Choice.UnhedgedTail == 0 && t.Choice.CutShort > 0,
		"The tail without hedging is unknown: too few slow calls were not hedged. WithControl(1) measures it.")
}

const maxNamed = 5

func list(names []string, more int) string {
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, plain(name))
	}
	if more > 0 {
		quoted = append(quoted, fmt.Sprintf("and %s more", count(int64(more))))
	}
	return strings.Join(quoted, ", ")
}
