package stats

import "time"

// Method is what is known of one method of one target. Its counts begin with the first call of the method, or with the
// first after the method was removed from memory: see hedge.WithMaxMethods. The fields of its parts can be read as its own.
type Method struct {
	// Target is the connection's target, as grpc.ClientConn.Target returns it or hedge.WithTargetName names it, and Method the
	// full method name.
	Target, Method string
	// Names are what metrics call them. They are empty before the first call.
	Names Names
	Counts
	Learned
	// Classes is what is known of each class of requests, by name; nil without hedge.WithClass. Counts are of the method, and so is
	// what else is learned.
	Classes []Class
	// Forecasts are the predictions of hedge.WithDryRun. They are nil without it, and while too little is known.
	Forecasts []Forecast
	// Gain is what hedging gains, measured on a control group; nil without hedge.WithControl.
	Gain *Gain
	Budget
	Backends
	// Guard is the share of hedges that the guard lets pass.
	Guard Guard
	// Resets says how many hedges may be sent because servers count resets. All methods of the target share it.
	Resets Resets
	// Unhedgeable says why most calls of the method cannot be hedged, although the options select it: [NotReplayable],
	// [EarlyHeaders], [NoOtherBackend], [DeadlineNear] or [OfHedge]. Choice then predicts no effect, and Forecasts is nil. It is
	// empty if most calls can be hedged.
	Unhedgeable Reason
	// Rules are the patterns of hedge.WithTargetOptions and hedge.WithMethodOptions that match. Where two set the same, the later
	// one is in force.
	Rules []string
	// PausedBy says why nothing is hedged now: "Pause", or "HEDGE_DISABLED" for the environment variable. It is empty if hedging is
	// not paused.
	PausedBy string
}

// Learned is what was learned of a method, or of a class of its requests, and what follows from it.
type Learned struct {
	// Delay is the age at which a call gets its first hedge now; 0 while too little is known. For a method with a hedgingPolicy it
	// is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of the latencies of primaries within the window, or of the last 1,000; 0 if none are
	// known.
	P50, P90, P99 time.Duration
	// Choice is the choice of the trigger hedge.Auto that is in force. It is zero with another trigger, and while too little is
	// known.
	Choice Choice
}

// Class is what is known of a class of requests of a method: see hedge.WithClass.
type Class struct {
	// Class is the name that the class function gave it, or "(other)".
	Class string
	Learned
}

// Budget is what the target's budget and its throttle hold. All methods of the target share them.
type Budget struct {
	// Tokens is the number of hedges that the budget would pay for now, and Burst the most tokens that it can hold at the
	// current traffic.
	Tokens, Burst float64
	// Saved is the number of further hedges, up to four times Burst, that the budget has saved and pays for while hedges win.
	Saved float64
	// ThrottleTokens is the throttle's token count and ThrottleMax its maximum. Hedges are sent while more than half of
	// ThrottleMax is left. Both are 0 without a throttle.
	ThrottleTokens, ThrottleMax float64
}

// Backends is what is known of the backends of a target, over all connections of the process to it. Most of it needs the policy of
// package balancer.
type Backends struct {
	// Ready is the number of different backends that are ready now; 0 if none is, or if no connection has the policy.
	Ready int
	// Connections is the same number, counting each of the connections that the policy's field "connections" asks for.
	Connections int
	// Silent are the backends with connections on which calls have been late for ten seconds or more, and
	// none was answered. Primaries avoid silent connections, also before the ten seconds are over. A
	// backend is left out once no call was late there for a minute. The backend that has been silent
	// longest comes first. Silent is nil if no backend is silent, and without the policy.
	Silent []SilentBackend
	// Moved is the number of primaries that were sent past a silent connection, of all methods of the target, since its
	// connections were made.
	Moved int64
	// SingleConnection says that hedges go over the connection that the primary uses, as with gRPC's default pick_first: they
	// meet the backend that is slow, behind the same lost packet. In a pool of grpc.ClientConns it says so of each of them, as a
	// hedge stays on its ClientConn. With the policy, no ClientConn has more than one ready connection. Without, each of the last
	// 15 hedges or more went over the same connection as the hedge before it on its ClientConn. Package balancer says how to change it.
	SingleConnection bool
}

// SilentBackend is a backend that has fallen silent on some of its connections: see package balancer.
type SilentBackend struct {
	// Address is the backend's address, as the resolver gave it.
	Address string
	// Connections is the number of its connections that are silent. Each connection of a pool counts.
	Connections int
	// Since is when the first of the calls that wait there was late.
	Since time.Time
}

// Names are the values of the attributes grpc.target and grpc.method, as gRPC's own OpenTelemetry plugin gives them, in valid UTF-8.
type Names struct {
	// Target is what grpc.ClientConn.CanonicalTarget returned for the first connection of the target. If hedge.WithTargetName has
	// named the target, or calls of hedge.Do, it is that name.
	Target string
	// Method is the full method without its leading slash. It is "other" until a call of the method has the option
	// grpc.StaticMethod, which generated code gives, as invented names would make any number of series. Calls of hedge.Do need none.
	Method string
}
