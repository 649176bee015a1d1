package hedge

import (
	"time"

	"google.golang.org/grpc"
)

// Off returns a call option for a call that must not be hedged. Its latency is still learned.
func Off() grpc.CallOption { return offOption{} }

// After returns a call option for a call that is hedged when it has lasted d, whatever was learned, and even
// while the method is being learned or when [WithMethods] or [WithIdempotentOnly] leaves it out. d may be
// below [WithMinDelay]; 0 or less sends all hedges at once. The number of hedges and the budget stay bounded
// as for any call.
func After(d time.Duration) grpc.CallOption { return afterOption{delay: max(d, 0)} }

type offOption struct{ grpc.EmptyCallOption }

type afterOption struct {
	grpc.EmptyCallOption
	delay time.Duration
}

// callOptions is what the call options of one call say about hedging it.
type callOptions struct {
	off   bool
	after bool
	delay time.Duration
}

// readCallOptions finds this package's options; of several the last counts, as with gRPC's own.
func readCallOptions(opts []grpc.CallOption) callOptions {
	var o callOptions
	for _, opt := range opts {
		switch opt := opt.(type) {
		case offOption:
			o = callOptions{off: true}
		case afterOption:
			o = callOptions{after: true, delay: opt.delay}
		}
	}
	return o
}
