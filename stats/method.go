package stats

import "time"

// Method is the state of one method of one target. Its counts start with the first call of the
// method, or with the first after the method was removed from memory: see hedge.WithMaxMethods.
type Method struct {
	// Target is the connection's target, as returned by grpc.ClientConn.Target or named by
	// hedge.WithTargetName. Method is the full method. Of HTTP requests they are scheme and host, and
	// the name that package hedgehttp describes.
	Target, Method string
	// Names are the target and the method in metrics. They are empty before the first call.
	Names Names
	Counts
	Learned
	// Classes are the latencies and delays of the classes of requests, sorted by name; nil without
	// hedge.WithClass. All other fields are of the whole method.
	Classes []Class
	// Forecasts are the predictions of hedge.WithDryRun; nil without the option, and until 200
	// calls.
	Forecasts []Forecast
	// Gain is the gain measured against a control group; nil without hedge.WithControl.
	Gain *Gain
	Budget
	Backends
	// Guard is the share of hedges that the guard allows.
	Guard Guard
	// Resets is the limit of hedges for servers that count resets. All methods of the target share
	// it.
	Resets Resets
	// Unhedgeable is the reason why most calls of the method cannot be hedged, although the options
	// select it: [NotReplayable], [EarlyHeaders], [NoOtherBackend], [DeadlineNear] or [OfHedge].
	// Choice then predicts no effect, and Forecasts is nil. It is empty if most calls can be
	// hedged.
	Unhedgeable Reason
	// Rules are the matching patterns of hedge.WithTargetOptions and hedge.WithMethodOptions. If
	// two set the same option, the later one is in force.
	Rules []string
	// PausedBy is the cause of a pause: "Pause", or "HEDGE_DISABLED" for the environment variable.
	// It is empty if hedging is not paused.
	PausedBy string
}

// Learned has the latencies of a method or of a class of its requests, and the delay chosen from
// them.
type Learned struct {
	// Delay is the current delay; 0 while too few calls are known. For a method with a
	// hedgingPolicy it is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of the latencies of primaries within the window, or of the
	// last 1,000; 0 without latencies.
	P50, P90, P99 time.Duration
	// Choice is the current choice of the trigger hedge.Auto. It is zero with another trigger, and
	// while too few calls are known.
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
	// current call rate.
	Tokens, Burst float64
	// Saved is the number of further hedges, up to four times Burst, that savings pay for while
	// hedges win.
	Saved float64
	// ThrottleTokens is the throttle's token count and ThrottleMax its maximum. Hedges are sent
	// while more than half of ThrottleMax is left. Both are 0 without a throttle.
	ThrottleTokens, ThrottleMax float64
}

// Backends is the state of a target's backends, over all connections of the process to the target.
// Most fields need the policy of package balancer.
type Backends struct {
	// Ready is the number of different ready backends; 0 if none is ready or no connection has the
	// policy.
	Ready int
	// Connections is the number of ready connections to these backends: the policy's field
	// "connections" can ask for several per backend.
	Connections int
	// Silent are the backends with connections that have been silent for at least ten seconds:
	// calls were late, and none was answered. Primaries avoid silent connections before the ten
	// seconds have passed. A backend without a late call for a minute is left out. The longest
	// silent backend is first. Silent is nil without silent backends or without the policy.
	Silent []SilentBackend
	// Moved is the number of primaries, of all methods of the target, that were moved past a silent
	// connection since its connections were made.
	Moved int64
	// SingleConnection reports whether hedges use the connection of their primary, as with gRPC's
	// default pick_first: they meet the same slow backend, behind the same lost packet. With the
	// policy, it means that no ClientConn has more than one ready connection. Without the policy,
	// it means that at least the last 15 hedges each used the same connection as the previous hedge
	// on its ClientConn. In a pool of ClientConns it holds for each of them, because a hedge stays
	// on its ClientConn. Package balancer describes the remedy.
	SingleConnection bool
}

// SilentBackend is a backend with silent connections: see package balancer.
type SilentBackend struct {
	// Address is the backend's address from the resolver.
	Address string
	// Connections is the number of its silent connections; each connection of a pool counts.
	Connections int
	// Since is the time at which the first of its waiting calls was late.
	Since time.Time
}

// Names are the values of the attributes grpc.target and grpc.method, in valid UTF-8, as in gRPC's
// own OpenTelemetry plugin.
type Names struct {
	// Target is the name from hedge.WithTargetName or hedge.Do, or else the result of
	// grpc.ClientConn.CanonicalTarget for the first connection of the target.
	Target string
	// Method is the full method without its leading slash. It is "other" until a call of the method
	// has the option grpc.StaticMethod, which generated code sets, because arbitrary names would
	// make an unbounded number of series. Calls of hedge.Do and HTTP requests do not need the option.
	Method string
}
