package stats

import "time"

// Method is what is known of one method of one target. Its counts begin with the first call of the method, or with the
// first after the method was removed from memory: see hedge.WithMaxMethods.
type Method struct {
	// Target is the connection's target, as grpc.ClientConn.Target returns it or hedge.WithTargetName names it, and Method the
	// full method name.
	Target, Method string
	// Names are what metrics call them. They are empty before the first call.
	Names Names
	Counts
	// Delay is the age at which a call gets its first hedge now; 0 while the method is being learned. For a method with a
	// hedgingPolicy it is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of the latencies of primaries within the window, or of the last 1,000; 0 if none are
	// known.
	P50, P90, P99 time.Duration
	// Choice is the choice of the trigger hedge.Auto that is in force. It is zero with another trigger, and while too little is
	// known.
	Choice Choice
	// Forecasts are the predictions of hedge.WithDryRun. They are nil without it, and while too little is known.
	Forecasts []Forecast
	// EarlyHeaderShare is the share, 0 to 1, of about the last hundred calls that counted in EarlyHeaders. From 0.5 on,
	// Choice predicts no improvement and says why, and Forecasts is nil.
	EarlyHeaderShare float64
	// Classes is what is known of each class of requests, by name; nil without hedge.WithClass. Counts are of the method, and so is
	// what else is learned.
	Classes []Class
	// Gain is what hedging gains, measured on a control group; nil without hedge.WithControl.
	Gain *Gain
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
	// NoBackendPolicy says that hedge.WithOtherBackendOnly held back the method's last hedge because the connection has no policy
	// hedge_other_backend. A service config from the resolver replaces the default one and the policy in it;
	// grpc.WithDisableServiceConfig keeps the default one.
	NoBackendPolicy bool
	// ThrottleTokens is the throttle's token count and ThrottleMax its maximum. Hedges are sent while more than half of
	// ThrottleMax is left. All methods of the target share them. Both are 0 without a throttle.
	ThrottleTokens, ThrottleMax float64
	// Rules are the patterns of hedge.WithTargetOptions and hedge.WithMethodOptions that match. Where two set the same, the later
	// one is in force.
	Rules []string
	// PausedBy says why calls are not hedged now: "Pause", "PauseTarget", "PauseMethod", or "HEDGE_DISABLED" for the
	// environment variable. It is empty if hedging is not paused.
	PausedBy string
	// Guard says whether hedges are held back because they make calls fail.
	Guard Guard
	// Resets says how many hedges may be sent because servers count resets. All methods of the target share it.
	Resets Resets
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

// SingleBackend reports whether exactly one backend is ready, over one connection, so that a hedge cannot go to another one.
// That is so with one address, and with pick_first, unless the policy's field "connections" asks for several. It returns
// false if no connection has the policy of package balancer.
func (m Method) SingleBackend() bool { return m.Connections == 1 }

// Class is what is known of a class of requests of a method: see hedge.WithClass.
type Class struct {
	// Class is the name that the class function gave it, or "(other)".
	Class string
	// Delay is the age at which a call gets its first hedge now; 0 while the class is being learned.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of what primaries took over the window; 0 while nothing is known.
	P50, P90, P99 time.Duration
	// Choice is what the trigger hedge.Auto has in force; zero with another trigger, and while too little is known.
	Choice Choice
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
