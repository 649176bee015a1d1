package hedge

import (
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Stats counts what became of calls. All counts are since the scheduler was made. None ever falls, but
// for Hedges and Hedged, by a hedge that was admitted and then could not be sent, because its call had just ended.
type Stats struct {
	// Calls is the number of RPCs begun.
	Calls int64
	// Hedged is the number of RPCs for which at least one hedge was sent.
	Hedged int64
	// Hedges is the number of hedges sent.
	Hedges int64
	// HedgeWins and PrimaryWins are the hedged RPCs that ended with an answer, by the attempt that gave it. A
	// hedged RPC that failed, or whose caller gave up, is in neither.
	HedgeWins, PrimaryWins int64
	// SameBackend is the number of hedges for which a backend was picked that an attempt of their call had used,
	// because no other was ready. Only the policy of package balancer tells; without it the count is 0.
	SameBackend int64

	// The others say why a hedge was not sent. Those of calls are counted when a call begins, those of hedges
	// when one is due, once for each.

	// Warmup is the number of calls begun while their method was being learned.
	Warmup int64
	// BudgetExhausted is the number of hedges that the budget did not pay for when they were due. Such a hedge
	// is considered again later while its call lasts.
	BudgetExhausted int64
	// NotDrawn is the number of hedges that the trigger's probability left out, or all but a trickle of them while it has
	// stepped down.
	NotDrawn int64
	// NotReady is the number of hedges that found the connection not ready.
	NotReady int64
	// NoOtherBackend is the number of hedges for which WithOtherBackendOnly found no other backend ready, or had no
	// policy of package balancer to tell it of one. Such a hedge is considered again later while its call lasts.
	NoOtherBackend int64
	// DeadlineNear is the number of hedges that would probably have answered after the call's deadline.
	DeadlineNear int64
	// Paused is the number of calls begun while hedging was paused, and of hedges that came due then.
	Paused int64
	// Off is the number of calls with the option Off.
	Off int64
	// NotSelected is the number of calls of methods that WithMethods, WithIdempotentOnly or WithServiceConfigOnly
	// leaves out.
	NotSelected int64
	// NoDescriptor is the number of calls of methods that WithIdempotentOnly leaves out because no descriptor of
	// theirs is linked into the program. They are not in NotSelected.
	NoDescriptor int64
	// Throttled is the number of hedges not sent because half of the target's throttle tokens or more were gone. The
	// call gets no more of them.
	Throttled int64
	// PushedBack is the number of failed attempts whose server said, in the trailer grpc-retry-pushback-ms, when or
	// that not to try again.
	PushedBack int64
	// NotReplayable is the number of calls of which no second attempt can be made, because of what their request or their
	// reply is, see interceptor.Unary, or, of a stream, because its request was not complete when a hedge was due. Of a
	// request it is found out, and counted, when a hedge is due.
	NotReplayable int64
	// DryRun is the number of calls that would have been hedged without WithDryRun; they are not in Hedged. What would have
	// held a hedge back beside the budget is not looked at, and hedges that a failure would have sent are not counted.
	DryRun int64
	// EarlyHeaders is the number of streams that were decided by response headers, which their caller asked for, more
	// than a moment before their first message came: 1 ms, and an eighth of the time to it. Nothing could be hedged after
	// that. See stream.WaitForMessage.
	EarlyHeaders int64
	// PassedThrough is the number of client-streaming and bidirectional calls, which are never hedged. They are
	// not in Calls.
	PassedThrough int64

	// LoserPanics is the number of hedges that panicked after their call was decided, when no caller was left
	// to panic to.
	LoserPanics int64
	// TriggerPanics is the number of times that computing a method's delay panicked, which is a defect of this package.
	// The last delay stays in force, and it is computed again about a second later.
	TriggerPanics int64
}

// HedgeRate is Hedges / Calls, the extra load; 0 without calls.
func (s Stats) HedgeRate() float64 {
	if s.Calls == 0 {
		return 0
	}
	return float64(s.Hedges) / float64(s.Calls)
}

// TargetStats is what is known of one method of one target. The counts are since the scheduler last began to know of the
// method: see [WithMaxMemory].
type TargetStats struct {
	// Target is the connection's target, as grpc.ClientConn.Target returns it or WithTargetName names it, and Method the
	// full method name.
	Target, Method string
	Stats
	// Delay is the age at which a call gets its first hedge now; 0 while the method is being learned. Of a method with
	// a hedgingPolicy it is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of what the primaries took over the window; 0 while nothing is known.
	P50, P90, P99 time.Duration
	// Choice is what the trigger Auto has in force; zero with another trigger, and while too little is known.
	Choice Choice
	// Forecasts are what hedging would do, with WithDryRun; nil without it, and while too little is known.
	Forecasts []Forecast
	// EarlyHeaderShare is the share, 0 to 1, of the last hundred calls or so that counted as EarlyHeaders. From one half
	// on, Choice predicts nothing from hedging and says so, and there are no Forecasts.
	EarlyHeaderShare float64
	// Classes is what is known of each class of requests, by name; nil without WithClass. Counts are of the method, and so is
	// what else is learned.
	Classes []ClassStats
	// Control compares calls that may be hedged with a control group; nil without WithControl.
	Control *Control
	// Tokens is the number of hedges that the target's budget would pay for now, and Burst the most that it can
	// save up at the current traffic. Both are the target's, shared by its methods.
	Tokens, Burst float64
	// Backends is the number of different backends that the target has ready now, as the policy of package balancer
	// sees them, over all connections of the process; 0 where it sees none or is not installed. See SingleBackend.
	Backends int
	// NoBackendPolicy says that WithOtherBackendOnly kept the method's last hedge that was due from being sent because the
	// connection has no policy hedge_other_backend. A resolver that brings a service config replaces the default one, and
	// the policy in it: grpc.WithDisableServiceConfig keeps the default one.
	NoBackendPolicy bool
	// ThrottleTokens is the target's throttle count and ThrottleMax what it started from: hedges are sent while more
	// than half of it is left. Both are 0 without a throttle, and the target's as well.
	ThrottleTokens, ThrottleMax float64
}

// SingleBackend reports whether a hedge cannot go elsewhere, because the target has a single backend ready, as
// with one address or with pick_first. It is false where nothing is known of backends.
func (t TargetStats) SingleBackend() bool { return t.Backends == 1 }

func newTargetStats(m engine.MethodStats) TargetStats {
	row := TargetStats{
		Target:          m.Target,
		Method:          m.Method,
		Stats:           Stats(m.Stats),
		Delay:           m.Delay,
		P50:             m.P50,
		P90:             m.P90,
		P99:             m.P99,
		Forecasts:       newForecasts(m.Forecasts),
		Tokens:          m.Tokens,
		Burst:           m.Burst,
		Backends:        m.Backends,
		NoBackendPolicy: m.NoBackendPolicy,
		ThrottleTokens:  m.ThrottleTokens,
		ThrottleMax:     m.ThrottleMax,

		EarlyHeaderShare: m.EarlyHeaderShare,
	}
	if m.Estimate != nil {
		row.Choice = newChoice(m.Estimate)
	}
	for _, class := range m.Classes {
		row.Classes = append(row.Classes, newClassStats(class))
	}
	if m.Control != nil {
		row.Control = newControl(m.Control)
		if tail := m.Control.UnhedgedTail; tail > 0 && row.Choice.UnhedgedTailFrom != "" {
			row.Choice.UnhedgedTail, row.Choice.UnhedgedTailFrom = tail, "the control group"
		}
	}
	row.withdraw()
	return row
}

// decidedEarly is why hardly any call is hedged of which half are decided by early headers.
const decidedEarly = "callers ask for the response headers first, and those come before the first message, so that no hedge can be sent: see stream.WaitForMessage"

// withdraw takes back what is predicted for hedges that are never due.
func (t *TargetStats) withdraw() {
	if t.EarlyHeaderShare < 0.5 {
		return
	}
	t.Forecasts = nil
	t.Choice.withdraw()
	for i := range t.Classes {
		t.Classes[i].Choice.withdraw()
	}
}

func (c *Choice) withdraw() {
	if *c != (Choice{}) {
		c.PredictedTail, c.PredictedLoad, c.PredictedWins = c.UnhedgedTail, 0, 0
		c.SteppedDown = decidedEarly
	}
}
