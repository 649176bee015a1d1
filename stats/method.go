// Package stats has the plain data that a scheduler of package hedge reports: [Counts] of calls and
// hedges, the state of each [Method], the [Outcome] of a call, and the events of hedge.Trace.
// Values are copies that the caller may keep and change. Import it as hedgestats alongside another
// package stats, such as gRPC's.
package stats

import "time"

// Method is the state of one method of one target. Its counts start with the first call of the
// method, or with the first after the method was removed from memory: see hedge.WithMaxMethods.
type Method struct {
	// Target is the connection's target, or its name from hedge.WithTargetName. Method is the full
	// method. Package hedgehttp describes both for HTTP requests.
	Target, Method string
	// Names are the target and the method in metrics. They are empty before the first call.
	Names Names
	Counts
	// Recent has the recent outcomes of callers.
	Recent Recent
	Learned
	// Classes are the latencies and delays of the classes of requests, sorted by name; nil without
	// hedge.WithClass. All other fields are of the whole method.
	Classes []Class
	// Forecasts are the predictions of hedge.WithDryRun; nil without it, and until 200 calls.
	Forecasts []Forecast
	// Gain is the gain measured against a control group; nil without hedge.WithControl, and where no
	// call could be hedged, as in a dry run.
	Gain *Gain
	Budget
	Backends
	Guard  Guard
	Resets Resets // shared by all methods of the target
	// Destinations are the first four other targets to which hedges of the method were sent: see
	// interceptor.HedgeTo.
	Destinations []string
	// Unhedgeable is the reason why most calls of the method cannot be hedged, although the options
	// select it: [UnknownOption], [NotReplayable], [EarlyHeaders], [DeadlineNear] or [OfHedge];
	// empty if most can be. With a reason, Choice predicts no effect, and Forecasts is nil.
	Unhedgeable Reason
	// Rules are the matching patterns of hedge.WithTargetOptions and hedge.WithMethodOptions. If
	// two set the same option, the later one is in force.
	Rules []string
	// PausedBy is the cause of a pause: "Pause", "HEDGE_DISABLED", or "" if hedging is not paused.
	PausedBy string
}

// Recent has the recent outcomes of the callers of a method.
type Recent struct {
	// Counts are the counts of the time Over: the last one or two minutes, or longer if the method
	// was not called in between.
	Counts
	Over time.Duration
	// P99 is the tail of the latencies that callers got within the window, from the start of a call
	// to its answer, of all calls with an answer: also of the ones from which nothing was learned. It
	// is 0 without an answer, and for a method that the options do not select.
	P99 time.Duration
}

// Learned has the latencies of a method or of a class of its requests, and its delay.
type Learned struct {
	// Delay is the current delay; 0 while too few calls are known, and while the options in force
	// hedge no call of the method. For a method with a hedgingPolicy it is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are percentiles of latency without hedging: of primaries within the window, or
	// of the last 1,000, and where hedges cut these short, of calls that were not hedged: see
	// [Counts].NotDrawn. An unknown percentile is 0, and so are all three for a method that the options
	// do not select.
	P50, P90, P99 time.Duration
	// Choice is zero with a trigger other than hedge.Auto, and where Delay is 0.
	Choice Choice
}

// Class has the latencies of a class of a method's requests: see hedge.WithClass.
type Class struct {
	// Class is the name returned by the class function, or "(other)".
	Class string
	Learned
}

// Budget is the state of the target's budget and throttle, which all its methods share.
type Budget struct {
	// Tokens is the number of hedges that the budget pays for now, and Burst its capacity at the
	// current call rate. Savings pay for Saved more hedges, up to four times Burst, while hedges
	// win.
	Tokens, Burst, Saved float64
	// ThrottleTokens is the throttle's token count and ThrottleMax its maximum. Hedges are sent
	// while more than half of ThrottleMax is left. Both are 0 without a throttle.
	ThrottleTokens, ThrottleMax float64
}

// Backends is the state of a target's backends, over all connections of the process to the target
// that have the policy of package balancer.
type Backends struct {
	// Ready is the number of different ready backends, and Connections the number of ready
	// connections to these.
	Ready, Connections int
	// Silent are the backends with connections that have been silent for at least ten seconds, with
	// a late call in the last minute, longest silence first.
	Silent []SilentBackend
	// Moved is the number of primaries, of all methods of the target, that were moved past a silent
	// connection since its connections were made.
	Moved int64
}

// SilentBackend is a backend with silent connections: see package balancer.
type SilentBackend struct {
	Address     string    // from the resolver
	Connections int       // the silent ones; each connection of a pool counts
	Since       time.Time // when the first of its waiting calls was late
}

// Names are the values of the attributes grpc.target and grpc.method, in valid UTF-8, as in gRPC's
// own OpenTelemetry plugin.
type Names struct {
	// Target is the name from hedge.WithTargetName or hedge.Do, or else the result of
	// grpc.ClientConn.CanonicalTarget for the first connection of the target.
	Target string
	// Method is the full method without its leading slash. For gRPC it is "other" until a call of the
	// method has the option grpc.StaticMethod, which generated code sets.
	Method string
}

// Choice is the current choice of the trigger hedge.Auto for a method, with its predicted effect.
// The tail is p99.
type Choice struct {
	// Delay is the age of a call at which its first hedge is due, and the time between further
	// hedges. A slow call is hedged with Probability, 0 to 1. MaxHedges is the maximum number of
	// hedges per call.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the tail without hedging, estimated from calls that were not hedged, or 0 if it
	// is unknown: see [Counts].NotDrawn. PredictedTail is the predicted tail with hedging. Recent.P99 is
	// the measured one.
	UnhedgedTail, PredictedTail time.Duration
	// CutShort is the share of primaries, 0 to 1, that were cut short.
	CutShort float64
	// PredictedLoad is the predicted number of hedges per call.
	PredictedLoad float64
	// Saved is the predicted share, 0 to 1, of the tail that hedging saves: of the area under the
	// latency-by-percentile curve from the median to p99.9, with both axes logarithmic.
	Saved float64
}

// Forecast is the predicted effect of hedging a method with a given budget: see hedge.WithDryRun.
type Forecast struct {
	BudgetPercent float64 // hedges per 100 calls
	// Delay, Probability and MaxHedges are the predicted choice of hedge.Auto: see [Choice].
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the p99 latency without hedging, and Tail the predicted one with hedging.
	UnhedgedTail, Tail time.Duration
	Load               float64 // the predicted number of hedges per call
}

// Guard is the state of the guard, which holds back hedges that exhaust a rate limit: see
// docs/guard.md. Each RESOURCE_EXHAUSTED that hedges may have caused halves the share of hedges that
// are sent, of the method or of all methods of the target. The share is 0 for a pause of 5 s to 6
// minutes, and then recovers within 30 s.
type Guard struct {
	Share float64 // of due hedges, 0 to 1, that may be sent; 1 if none is held back
	// Since is the start of the reduction, and Reason its cause. Both are zero without one.
	Since  time.Time
	Reason GuardReason
}

// GuardReason is the reason for holding hedges back.
type GuardReason string

const (
	GuardNone      GuardReason = "" // none is held back
	GuardExhausted GuardReason = "exhausted"
	GuardCounting  GuardReason = "counting"
)

// String returns a sentence, or "" for GuardNone.
func (r GuardReason) String() string {
	switch r {
	case GuardExhausted:
		return "hedges failed with RESOURCE_EXHAUSTED; their share recovers within minutes"
	case GuardCounting:
		return "hedges failed with RESOURCE_EXHAUSTED; none is sent for some minutes, to count failures without hedges"
	}
	return string(r)
}

// Resets is the limit on a target's hedges if its servers count resets: each hedge causes one, its
// loser's. Such servers close a connection on which a client resets more than a few hundred streams
// per minute, and the calls in flight fail. docs/servers.md lists them.
//
// If hedges were sent in the minute before, each attempt in flight makes the next hedge of its call due
// at once, as with hedge.WithFailover.
type Resets struct {
	// Limit is the maximum number of hedges in any interval of Per, from hedge.WithHedgeLimit; 0
	// without the option.
	Limit int
	Per   time.Duration
	// Learned is the maximum number of hedges per minute, since a server closed a connection at
	// Since; 0 if no limit is in force. The limit ends at Until, unless a server closes a
	// connection again.
	//
	// If the server reports the reason (ENHANCE_YOUR_CALM), Learned starts at half of the hedges of
	// the minute before, and doubles in an hour. After two closes within a minute without a reason,
	// it starts at half the rate of the second before, and doubles in four minutes.
	Learned      int
	Since, Until time.Time
}
