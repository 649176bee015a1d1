package hedge

import (
	"time"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/stats"
)

// Stats has counts of calls and hedges. Those of [Scheduler.Stats] count from when the scheduler was made. No count ever
// falls, with one exception: Hedges and Hedged fall by one if the call ends between the decision to send a hedge and its
// sending.
type Stats struct {
	// Calls is the number of calls begun, without those in PassedThrough.
	Calls int64
	// Hedged is the number of calls for which at least one hedge was sent.
	Hedged int64
	// Hedges is the number of hedges sent.
	Hedges int64
	// HedgeWins and PrimaryWins count the hedged calls that ended with an answer, OK or a final status, by the attempt that
	// gave it. A hedged call that failed, or whose caller gave up, is in neither.
	HedgeWins, PrimaryWins int64
	// SameBackend is the number of hedges sent to a backend that an attempt of their call had used, because no other was
	// ready. Without the policy of package balancer it is 0.
	SameBackend int64
	// Left is the number of losing attempts that were left to run to their end instead of being reset: see
	// [TargetStats].Resets.
	Left int64
	// Repeated is the number of hedges that were sent because the connection of their call was cut, and resets of losing
	// attempts are to blame. They are in Hedges too.
	Repeated int64

	// The counts down to PassedThrough say why a hedge was not sent. A count of calls goes up when a call begins. A count of
	// hedges goes up when a hedge is due, at most once for each hedge and reason.

	// Warmup is the number of calls begun while their method was being learned.
	Warmup int64
	// BudgetExhausted is the number of hedges that the budget did not pay for when they were due. Such a hedge
	// is considered again later while its call lasts.
	BudgetExhausted int64
	// NotDrawn is the number of hedges that were left out at random, by the probability in Choice, or because hedging has
	// stepped down.
	NotDrawn int64
	// NotReady is the number of hedges that were due while the connection was not ready. Such a hedge is considered again
	// later while its call lasts.
	NotReady int64
	// NoOtherBackend is the number of hedges that WithOtherBackendOnly held back, because no other backend was ready or the
	// connection has no policy of package balancer. Such a hedge is considered again later while its call lasts.
	NoOtherBackend int64
	// DeadlineNear is the number of hedges that would probably have answered after the call's deadline.
	DeadlineNear int64
	// Paused is the number of calls begun while hedging was paused, and of hedges that came due then.
	Paused int64
	// OfHedges is the number of hedges not sent because their call was made on behalf of a hedge: see WithHedgesOfHedges. The
	// call gets no more hedges.
	OfHedges int64
	// Off is the number of calls with the option Off or WithOff.
	Off int64
	// NotSelected is the number of calls of methods that the options of New do not select.
	NotSelected int64
	// NoDescriptor is the number of calls of methods that WithIdempotentOnly does not select because their descriptor is not
	// linked into the program. They are not in NotSelected.
	NoDescriptor int64
	// Throttled is the number of hedges not sent because at most half of the target's throttle tokens were left. The call
	// gets no more hedges.
	Throttled int64
	// Guarded is the number of hedges that were held back because hedges make calls fail, or to find out whether they do: see
	// TargetStats.Guard. Such a hedge is considered again later while its call lasts.
	Guarded int64
	// PushedBack is the number of failed attempts with the trailer grpc-retry-pushback-ms, by which a server asks to wait
	// before the next attempt, or to send none.
	PushedBack int64
	// NotReplayable is the number of calls that cannot be hedged because of the kind of their request or reply (see
	// interceptor.Unary), and of streams whose request was not complete when a hedge was due. Requests are examined, and
	// counted here, only when a hedge is due.
	NotReplayable int64
	// ResetsSpent is the number of hedges that were due when no reset was left to send, of calls whose primary could not be
	// left to run to its end. Such a hedge is considered again later while its call lasts.
	ResetsSpent int64
	// DryRun is the number of calls that would have been hedged without WithDryRun. They are not in Hedged. Of the reasons
	// not to send a hedge, only the probability and the budget are considered. Hedges that a failure would have sent are not
	// counted.
	DryRun int64
	// EarlyHeaders is the number of streams whose caller called Header first, and whose headers came before the first
	// message: by at least 1 ms, and by at least an eighth of the time to that message. Such a stream cannot be hedged while
	// it waits for the message. See stream.WaitForMessage.
	EarlyHeaders int64
	// PassedThrough is the number of client-streaming and bidirectional calls, which are never hedged. They are
	// not in Calls.
	PassedThrough int64

	// PoorAnswers is the number of attempts that gave a poor answer before their call ended: see WithAnswer.
	PoorAnswers int64
	// InvalidCosts is the number of calls for which the function of WithCost returned what is not finite or is less than 0. Each
	// counts as 1.
	InvalidCosts int64
	// LoserPanics is the number of losing attempts that panicked, so that the panic could not reach the caller.
	LoserPanics int64
	// TriggerPanics is the number of panics while a method's delay was computed. Each is a defect of this library. The last
	// delay stays in force, and is computed again about a second later.
	TriggerPanics int64
}

// HedgeRate is Hedges / Calls, the extra load; 0 without calls.
func (s Stats) HedgeRate() float64 {
	if s.Calls == 0 {
		return 0
	}
	return float64(s.Hedges) / float64(s.Calls)
}

// TargetStats is what is known of one method of one target. Its counts begin with the first call of the method, or with the
// first after the method was removed from memory: see [WithMaxMemory].
type TargetStats struct {
	// Target is the connection's target, as grpc.ClientConn.Target returns it or WithTargetName names it, and Method the
	// full method name.
	Target, Method string
	Stats
	// Delay is the age at which a call gets its first hedge now; 0 while the method is being learned. For a method with a
	// hedgingPolicy it is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of the latencies of primaries within the window, or of the last 1,000; 0 if none are
	// known.
	P50, P90, P99 time.Duration
	// Choice is the choice of the trigger Auto that is in force. It is zero with another trigger, and while too little is
	// known.
	Choice Choice
	// Forecasts are the predictions of WithDryRun. They are nil without it, and while too little is known.
	Forecasts []Forecast
	// EarlyHeaderShare is the share, 0 to 1, of about the last hundred calls that counted in EarlyHeaders. From 0.5 on,
	// Choice predicts no improvement and says why, and Forecasts is nil.
	EarlyHeaderShare float64
	// Classes is what is known of each class of requests, by name; nil without WithClass. Counts are of the method, and so is
	// what else is learned.
	Classes []ClassStats
	// Control compares calls that may be hedged with a control group; nil without WithControl.
	Control *stats.Control
	// Tokens is the number of hedges that the budget would pay for now, and Burst the most tokens that it can hold at the
	// current traffic. All methods of the target share them.
	Tokens, Burst float64
	// Saved is the number of further hedges, up to four times Burst, that the budget has saved and pays for while hedges win.
	// All methods of the target share them.
	Saved float64
	// Backends is the number of different backends that are ready now, over all connections of the process to the target. It
	// is 0 if none is ready or no connection has the policy of package balancer. See SingleBackend.
	Backends int
	// Connections is the same number, counting each of the connections that the policy's field "connections" asks for.
	Connections int
	// Silent are the backends with silent connections: calls there are late, and none has answered since. Primaries avoid these
	// connections. The backend that has been silent longest comes first. Silent is nil if none is silent, and without the
	// policy of package balancer.
	Silent []SilentBackend
	// Moved is the number of primaries that were sent past a silent connection, of all methods of the target, since its
	// connections were made.
	Moved int64
	// SingleConnection says that hedges go over the connection that the primary uses, as with gRPC's default pick_first: they
	// meet the backend that is slow, behind the same lost packet. With the policy of package balancer it says that one
	// connection is ready. Without, it says that at least the last 16 hedges of a connection's calls went over one, which is
	// also logged once for each target, by gRPC's logger at level info. Package balancer says how to change it.
	SingleConnection bool
	// NoBackendPolicy says that WithOtherBackendOnly held back the method's last hedge because the connection has no policy
	// hedge_other_backend. A service config from the resolver replaces the default one and the policy in it;
	// grpc.WithDisableServiceConfig keeps the default one.
	NoBackendPolicy bool
	// ThrottleTokens is the throttle's token count and ThrottleMax its maximum. Hedges are sent while more than half of
	// ThrottleMax is left. All methods of the target share them. Both are 0 without a throttle.
	ThrottleTokens, ThrottleMax float64
	// Rules are the patterns of WithTargetOptions and WithMethodOptions that match. Where two set the same, the later one is in
	// force.
	Rules []string
	// PausedBy says why calls are not hedged now: "Pause", "PauseTarget", "PauseMethod", or "HEDGE_DISABLED" for the
	// environment variable. It is empty if hedging is not paused.
	PausedBy string
	// Guard says whether hedges are held back because they make calls fail.
	Guard stats.Guard
	// Resets says how many losing attempts are reset on the wire. All methods of the target share it.
	Resets stats.Resets
}

// SilentBackend is a backend that has fallen silent on some of its connections: see package balancer.
type SilentBackend struct {
	// Address is that of the backend, as the resolver gave it.
	Address string
	// Connections is the number of its connections that are silent. Each connection of a pool counts.
	Connections int
	// Since is when the first of the calls that wait there was late.
	Since time.Time
}

// SingleBackend reports whether exactly one backend is ready, over one connection, so that a hedge cannot go to another one.
// That is so with one address, and with pick_first, unless the policy's field "connections" asks for several. It returns
// false if no connection has the policy of package balancer.
func (t TargetStats) SingleBackend() bool { return t.Connections == 1 }

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
		Saved:           m.Saved,
		Backends:        m.Ready.Backends,
		Connections:     m.Ready.Connections,
		Moved:           m.Ready.Moved,
		NoBackendPolicy: m.NoBackendPolicy,
		ThrottleTokens:  m.ThrottleTokens,
		ThrottleMax:     m.ThrottleMax,
		Rules:           m.Rules,
		PausedBy:        m.PausedBy,
		Guard:           m.Guard,

		SingleConnection: m.SingleConnection,

		EarlyHeaderShare: m.EarlyHeaderShare,
		Resets:           m.Resets,
		Control:          m.Control,
	}
	for _, b := range m.Ready.Silent {
		row.Silent = append(row.Silent, SilentBackend{Address: b.Address, Connections: b.Connections, Since: b.Since})
	}
	if m.Estimate != nil {
		row.Choice = newChoice(m.Estimate)
	}
	for _, class := range m.Classes {
		row.Classes = append(row.Classes, newClassStats(class))
	}
	if tail := m.UnhedgedTail; tail > 0 && row.Choice.UnhedgedTailFrom != "" {
		row.Choice.UnhedgedTail, row.Choice.UnhedgedTailFrom = tail, "the control group"
	}
	row.withdraw()
	return row
}

// decidedEarly is the SteppedDown of a method of which at least half of the calls count in EarlyHeaders.
const decidedEarly = "callers ask for the response headers first, and those come before the first message, so that no hedge can be sent: see stream.WaitForMessage"

// withdraw removes the predictions if headers come too early for hedges.
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
