package hedge

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// Option is an option of [New] and [Scheduler.Update]. If its value is out of range, they return an error.
type Option interface {
	apply(*config) error
}

// config is what options set.
type config struct {
	settings.Config
	made []func(*Scheduler) // of WithTrace
}

type optionFunc func(*config) error

func (set optionFunc) apply(c *config) error { return set(c) }

func newConfig(opts []Option) (config, error) {
	c := config{Config: settings.DefaultConfig()}
	err := apply(&c, opts)
	if err == nil && !c.SaysWhich() && !c.Off {
		err = errors.New("hedge: New: no option says which methods may run twice; give one of WithIdempotentOnly, " +
			"WithReadOnlyMethods, WithMethods, WithServiceConfig and WithAllMethods")
	}
	return c, err
}

// apply applies options to a configuration, and joins their errors.
func apply(c *config, opts []Option) error {
	var errs []error
	for _, opt := range opts {
		if opt != nil {
			errs = append(errs, opt.apply(c))
		}
	}
	return errors.Join(errs...)
}

func named(name string, set func(*config) error) Option {
	return optionFunc(func(c *config) error {
		c.Set = append(c.Set, name)
		return set(c)
	})
}

// option returns the option of a name. err is the error of its value, if it has one.
func option(name string, err error, set func(*settings.Config)) Option {
	return named(name, func(c *config) error {
		if err == nil {
			set(&c.Config)
		}
		return err
	})
}

// refuse returns an error if a value is out of range.
func refuse(outOfRange bool, format string, args ...any) error {
	if !outOfRange {
		return nil
	}
	return fmt.Errorf("hedge: "+format, args...)
}

// Which methods may be hedged.

// WithReadOnlyMethods hedges the full methods that match one of the patterns, and declares that they only read, as
// idempotency_level = NO_SIDE_EFFECTS in a .proto file does. Patterns are written as for [WithMethods]. If both options are given,
// the methods of both are hedged. A hedge of a read-only method may end the call with a final status, such as NOT_FOUND: see
// [WithNonFatalCodes]. If a replica lags behind the others, its NOT_FOUND may be out of date.
func WithReadOnlyMethods(patterns ...string) Option {
	return adding("WithReadOnlyMethods", patterns, func(c *settings.Config) *[]string { return &c.ReadOnly })
}

// WithMethods hedges the full methods that match one of the patterns, such as "/pkg.Svc/Get" or "/pkg.Svc/Get*". Patterns are
// written as for [path.Match]: * stands for any characters but a slash. At least one pattern is needed. If the option is given more
// than once, all patterns apply. Calls of other methods are not hedged, and nothing is learned from them.
func WithMethods(patterns ...string) Option {
	return adding("WithMethods", patterns, func(c *settings.Config) *[]string { return &c.Methods })
}

// WithIdempotentOnly hedges the methods whose protobuf definition sets idempotency_level to NO_SIDE_EFFECTS or IDEMPOTENT, and
// the methods of [WithReadOnlyMethods]. With [WithMethods], a method must satisfy both options. The definition must be linked into
// the program; stats.Counts.NoDescriptor counts calls of methods without one.
func WithIdempotentOnly() Option {
	return option("WithIdempotentOnly", nil, func(c *settings.Config) { c.IdempotentOnly = true })
}

// WithAllMethods hedges every method that no other option excludes. All of them must be safe to run twice: a hedged write may
// be carried out twice.
func WithAllMethods() Option {
	return option("WithAllMethods", nil, func(c *settings.Config) { c.All = true })
}

func checkPattern(option, methods string) error {
	err := settings.CheckPattern(methods)
	return refuse(err != nil, "%s(%q): %w", option, methods, err)
}

// adding returns the option of a name that adds patterns to others.
func adding(name string, patterns []string, to func(*settings.Config) *[]string) Option {
	err := refuse(len(patterns) == 0, "%s(): at least one pattern is needed", name)
	for _, p := range patterns {
		err = cmp.Or(err, checkPattern(name, p))
	}
	return option(name, err, func(c *settings.Config) { *to(c) = append(*to(c), patterns...) })
}

// WithWaitForMessage makes Header of a stream wait for the first message, so that streams can be hedged whose caller calls Header
// first. The next RecvMsg returns that message. It applies to the full methods that match one of the patterns, such as
// "/pkg.Svc/Read" or "/pkg.Svc/Read*", written as for [WithMethods]. At least one is needed. If the option is given more than
// once, all patterns apply. By default Header waits only for headers. If those come early, no hedge can be sent, and Counts of
// package stats counts the call in EarlyHeaders.
//
// Use it for clients that call Header before RecvMsg, as Bigtable's does. Do not use it if the server sends its first message
// only after the client, having received the headers, does something else: Header would wait for ever. For methods with a
// hedgingPolicy it has no effect: gRPC defines that headers end their race.
//
// Nobody knows at that moment into which type of message the caller will receive. So interceptors chained after hedging receive
// into a message of the type that the method's descriptor names, if it is linked into the program, and otherwise into one that
// means nothing to them. If a call option chooses a codec, it is always one of the latter. The caller gets what the server
// has sent, decoded into the caller's message. What such an interceptor has changed in a message that means something to it is
// changed for the caller too. An interceptor chained after hedging must not choose another codec. Where [WithAcceptable] has to
// judge a message of an unknown type, Header waits only for headers.
func WithWaitForMessage(patterns ...string) Option {
	return adding("WithWaitForMessage", patterns, func(c *settings.Config) *[]string { return &c.WaitForMessage })
}

// WithSingleRequest hedges bidirectional methods that match one of the patterns as server streams
// are hedged, on the time to their first message. It is for methods whose caller sends one message
// and then waits for many, as with Triton's and KServe's ModelStreamInfer. Another option must
// select the methods, as for any method. Patterns are written as for [WithMethods]. At least one is
// needed. If the option is given more than once, all patterns apply. By default bidirectional
// methods are not hedged.
//
// A hedge sends the first message again, and closes its side when the caller does. A second message
// of the caller ends the race for the primary, or goes to the hedge that has won. It counts in
// stats.Counts.SecondRequest. A method is not hedged while more than one stream in 16 has a second
// message; its calls then count in NotReplayable.
func WithSingleRequest(patterns ...string) Option {
	return adding("WithSingleRequest", patterns, func(c *settings.Config) *[]string { return &c.SingleRequest })
}

// WithServiceConfig hedges the methods that have a hedgingPolicy in a gRPC service config, as gRPC defines it. json is the
// service config that gRPC takes. If gRPC rejects a value, New returns an error that names the method, the field and the value.
// Pass the same JSON to grpc.WithDefaultServiceConfig for the other fields. If the option is given more than once, the last one
// applies.
//
// If no other option says which methods may run twice, only the methods with a policy are hedged, and nothing is learned of the
// others. With another such option, exactly the methods that it selects are hedged, and those without a policy have a learned
// delay.
//
// A method with a policy has up to maxAttempts attempts, the primary included, and 5 at most; [WithMaxHedges] does not apply.
// [After] replaces its hedgingDelay. The budget, the throttle and [WithOtherBackendOnly] can hold back its hedges, and with a
// budget of 400 percent only the policy limits them, as in gRPC. docs/configuration.md says how such a call ends, and what a
// retryThrottling does.
func WithServiceConfig(json string) Option {
	parsed, err := rpc.ParseServiceConfig(json)
	if err != nil {
		err = fmt.Errorf("hedge: WithServiceConfig: %w", err)
	}
	return option("WithServiceConfig", err, func(c *settings.Config) { c.ServiceConfig = parsed })
}

// How many hedges are sent.

// WithMaxHedges sets the most hedges of one call, in addition to its primary: 0 to 4; the default is 2. gRPC
// limits a call to five attempts. With 0 no call is hedged, and latencies are still learned. A call that fails because its server
// has cut the connection for too many resets may be sent once more.
func WithMaxHedges(n int) Option {
	err := refuse(n < 0 || n >= race.MaxAttempts, "WithMaxHedges(%d): the number of hedges must be 0 to %d", n, race.MaxAttempts-1)
	return option("WithMaxHedges", err, func(c *settings.Config) { c.MaxHedges = n })
}

// WithBudgetPercent sets how many hedges 100 calls of a target pay for: 0 to 400, fractions allowed; the default is 10.
// With 0 no call is hedged. All methods of a target share its budget.
func WithBudgetPercent(p float64) Option {
	err := refuse(!(p >= 0 && p <= settings.MaxBudgetPercent), "WithBudgetPercent(%v): the percentage must be 0 to %d", p, settings.MaxBudgetPercent)
	return option("WithBudgetPercent", err, func(c *settings.Config) { c.BudgetPercent = p })
}

// WithControl leaves a share of the calls unhedged, to measure what hedging gains for the others: percent of those that may be
// hedged, 0 to 100; the default is 0. They are drawn by chance, call by call, so both groups see the same requests, backends and
// hours. [stats.Gain] is the comparison. Calls of the control group lose what hedging would have saved them. One percent of 100
// calls a second tells a p99 within a quarter, 19 times in 20, after ten minutes, and within an eighth after half an hour. Where
// slow calls come in bunches, it takes longer.
func WithControl(percent float64) Option {
	err := refuse(!(percent >= 0 && percent <= 100), "WithControl(%v): the percentage must be 0 to 100", percent)
	return option("WithControl", err, func(c *settings.Config) { c.Control = percent })
}

// WithDryRun(true) sends no hedge and reports what hedging would do, so that you can judge it on real traffic first.
// stats.Counts.DryRun counts the calls that would have been hedged. After 200 calls of a method, stats.Method.Forecasts
// predicts its tail and extra load at budgets of 2, 5, 10 and 20 percent, whatever [WithBudgetPercent] says. The tail is the
// percentile of [TargetPercentile], and p99 with a trigger other than [Auto]. A forecast assumes that hedges are as fast as
// primaries and independent of them. The default is false.
func WithDryRun(on bool) Option {
	return option("WithDryRun", nil, func(c *settings.Config) { c.DryRun = on })
}

// WithOff(true) leaves calls unhedged, including calls with the call option [After]. Their latencies are still learned. New
// accepts it without an option that selects methods, and then learns every method. The default is false.
func WithOff(off bool) Option {
	return option("WithOff", nil, func(c *settings.Config) { c.Off = off })
}

// When a hedge is not sent, and how a race ends.

// WithOtherBackendOnly(true) sends a hedge only to a backend that no attempt of its call has used. The connection must have the
// load-balancing policy hedge_other_backend of package balancer. Its child policy is asked for such a backend before the hedge is
// paid for: see docs/other-backends.md. A hedge that is held back counts in stats.Counts.NoOtherBackend, and is considered again
// while its call lasts.
//
// On a connection without the policy no hedge is sent. A service config from the resolver replaces the one of
// grpc.WithDefaultServiceConfig, and with it the policy, unless grpc.WithDisableServiceConfig is given. Calls of [Do] have no
// connection, and are hedged as without this option. The default is false.
func WithOtherBackendOnly(on bool) Option {
	return option("WithOtherBackendOnly", nil, func(c *settings.Config) { c.OtherBackendOnly = on })
}

// WithGuard(false) turns off the guard, which holds hedges back where they use up a rate limit: see [stats.Guard]. The budget
// and the throttle still limit hedges. The default is true.
func WithGuard(on bool) Option {
	return option("WithGuard", nil, func(c *settings.Config) { c.Guard = on })
}

// WithNonFatalCodes replaces the set of non-fatal statuses. If the primary fails with one of them while a hedge is in flight,
// the race goes on. Any other status of the primary ends the race, and the caller gets it. If the primary fails before a hedge
// was sent, the call returns its error at once: hedging is not a retry.
//
// The set also applies to the hedges of a method that only reads. A hedge's status is final only if a gRPC server sent it: not if
// it comes from per-RPC credentials, a proxy's HTTP status or an interceptor. A hedge of any other method ends the race only with OK,
// because its NOT_FOUND may be the result of the primary's own deletion. If no attempt succeeds, the caller gets the primary's
// error. A method with a hedgingPolicy uses the policy's own set for all attempts: see [WithServiceConfig].
//
// By default all statuses are non-fatal except InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated,
// FailedPrecondition, OutOfRange and Unimplemented. With an empty list every error is final. OK, and codes that gRPC does not
// define, are an error.
func WithNonFatalCodes(nonFatal ...codes.Code) Option {
	var err error
	for _, code := range nonFatal {
		err = errors.Join(err, refuse(code == codes.OK || code > rpc.MaxCode, "WithNonFatalCodes(%v): not the code of an error", code))
	}
	return option("WithNonFatalCodes", err, func(c *settings.Config) { c.Final = rpc.CodesBut(nonFatal) })
}

// WithResetLimit bounds the hedges of a target for servers that count resets: at most n in any time of per, over all its
// connections together. n is 1 or more, and per at least a millisecond. Each hedge makes one loser, which is reset on the wire.
// Without the option there is no limit until a server cuts connections because of resets: see [stats.Resets].
func WithResetLimit(n int, per time.Duration) Option {
	err := refuse(n < 1 || per < time.Millisecond,
		"WithResetLimit(%d, %v): the number must be at least 1, and the time at least %v", n, per, time.Millisecond)
	return option("WithResetLimit", err, func(c *settings.Config) { c.ResetLimit = &resets.Limit{N: n, Per: per} })
}
