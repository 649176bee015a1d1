package hedge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// Option is an option of [New] and [Scheduler.Update], which return an error for a value out of
// range. docs/options.md lists all options.
type Option interface {
	apply(*config) error
}

type config struct {
	settings.Config
	given map[string]scope   // the options that were given
	rules map[[2]string]bool // those given as option and pattern
	made  []func(*Scheduler) // by WithTrace
}

// scope states where an option can be given.
type scope uint8

const (
	forScheduler  scope = iota // New and Update only
	notForMethods              // WithTargetOptions too
	anywhere                   // WithMethodOptions too
)

// setting is an option that sets values. Its text is its call, without values that are Go functions.
type setting struct {
	name string
	to   scope
	args []any
	set  func(*config) error
}

func (s *setting) apply(c *config) error {
	c.given[s.name] = s.to
	c.Options = append(c.Options, s.String())
	return s.set(c)
}

func (s *setting) String() string {
	args := make([]string, len(s.args))
	for i, arg := range s.args {
		if text, ok := arg.(string); ok {
			arg = strconv.Quote(text)
		}
		args[i] = fmt.Sprint(arg)
	}
	return s.name + "(" + strings.Join(args, ", ") + ")"
}

// asArgs returns the arguments of a setting that takes any number of values.
func asArgs[T any](values []T) (args []any) {
	for _, v := range values {
		args = append(args, v)
	}
	return args
}

func newConfig(opts []Option) (*config, error) {
	c, err := applied(settings.DefaultConfig(), opts)
	if err == nil && !c.SelectsMethods() && !c.Off {
		err = errors.New("hedge: New: must have an option that selects methods, such as WithReadOnlyMethods")
	}
	if err == nil {
		if err = c.Prepare(); err != nil {
			err = fmt.Errorf("hedge: New: %w", err)
		}
	}
	return c, err
}

// applied returns a configuration with options applied, and joins their errors.
func applied(to settings.Config, opts []Option) (*config, error) {
	c := &config{Config: to, given: map[string]scope{}, rules: map[[2]string]bool{}}
	// Options append to these.
	c.Options, c.MethodRules, c.TargetRules = slices.Clip(c.Options), slices.Clip(c.MethodRules), slices.Clip(c.TargetRules)
	var errs []error
	for _, opt := range opts {
		if opt != nil {
			errs = append(errs, opt.apply(c))
		}
	}
	return c, errors.Join(errs...)
}

// option returns an option that sets values, or returns err, the error of these values. args are the
// arguments of the option's function.
func option(name string, to scope, err error, set func(*settings.Config), args ...any) Option {
	return &setting{name, to, args, func(c *config) error {
		if err == nil {
			set(&c.Config)
		}
		return err
	}}
}

func refuse(outOfRange bool, format string, args ...any) error {
	if !outOfRange {
		return nil
	}
	return fmt.Errorf("hedge: "+format, args...)
}

// WithReadOnlyMethods hedges the methods that match one of the patterns, and declares that they have
// no side effects. Patterns have the syntax of [WithMethods]. With both options, the methods of both
// are hedged. A hedge of a read-only method may end the call with a final status, such as the
// NOT_FOUND of a replica that lags behind: see [WithNonFatalCodes].
func WithReadOnlyMethods(patterns ...string) Option {
	return adding("WithReadOnlyMethods", patterns, func(c *settings.Config) *[]string { return &c.ReadOnly })
}

// WithMethods hedges the methods that match one of the patterns, and learns no others. At least one
// pattern is required. Repeated options add their patterns. A pattern has one of two forms:
//
//   - "/pkg.Svc/Get*" matches full gRPC methods. It has two parts in the syntax of [path.Match], in
//     which * matches any characters but a slash.
//   - "GET /users/{id}/orders", "/_search" and "POST api.example.com/v1/{rest...}" match the HTTP
//     requests of package hedgehttp. They are the patterns of [net/http.ServeMux]: a method, a host
//     and a path. Only the path is required. A path of two parts without a wildcard has the first
//     form, which matches HTTP requests of any method.
//
// New returns an error if two patterns of the second form conflict, as ServeMux defines it.
func WithMethods(patterns ...string) Option {
	return adding("WithMethods", patterns, func(c *settings.Config) *[]string { return &c.Methods })
}

// WithIdempotentOnly hedges the methods with the protobuf option idempotency_level =
// NO_SIDE_EFFECTS or IDEMPOTENT, and the methods of [WithReadOnlyMethods]. With [WithMethods], a
// method must satisfy both options. Its descriptor must be linked into the program:
// stats.Counts.NoDescriptor counts calls of methods without one.
func WithIdempotentOnly() Option {
	return option("WithIdempotentOnly", forScheduler, nil, func(c *settings.Config) { c.IdempotentOnly = true })
}

// WithAllMethods hedges every method that no other option excludes. Every method must be safe to
// run twice: a hedged write may be applied twice.
func WithAllMethods() Option {
	return option("WithAllMethods", forScheduler, nil, func(c *settings.Config) { c.All = true })
}

func checkPattern(option, methods string) error {
	err := settings.CheckPattern(methods, option == "WithWaitForMessage" || option == "WithSingleRequest")
	return refuse(err != nil, "%s(%q): %w", option, methods, err)
}

// adding returns an option that appends patterns to a list of patterns.
func adding(name string, patterns []string, to func(*settings.Config) *[]string) Option {
	patterns = slices.Clone(patterns) // the caller may refill its slice
	err := refuse(len(patterns) == 0, "%s(): must have at least one pattern", name)
	for _, p := range patterns {
		err = cmp.Or(err, checkPattern(name, p))
	}
	return option(name, forScheduler, err, func(c *settings.Config) { *to(c) = append(*to(c), patterns...) },
		asArgs(patterns)...)
}

// WithWaitForMessage makes Header of a stream wait for the first message, so that a stream can be
// hedged even if its caller calls Header first, as Bigtable's client does. By default such a stream
// cannot be hedged if headers arrive early: see stats.Counts.EarlyHeaders. Patterns of full methods
// have the syntax of [WithMethods]. At least one is required. Repeated options add their patterns.
//
// Do not use the option if the server sends its first message only after the client has acted on
// the headers: Header would never return. The option has no effect on methods with a hedgingPolicy.
//
// Interceptors chained after hedging see the first message as the method's response type, if its
// descriptor is linked in and no call option selects a codec, and as an opaque message otherwise.
// Their changes to a typed message are kept. They must not select another codec. If
// [WithAcceptable] would get an opaque message, Header waits only for headers.
func WithWaitForMessage(patterns ...string) Option {
	return adding("WithWaitForMessage", patterns, func(c *settings.Config) *[]string { return &c.WaitForMessage })
}

// WithSingleRequest hedges matching bidirectional methods like server streams; by default they are
// not hedged. It is for callers that send one message and receive many, as in Triton's
// and KServe's ModelStreamInfer. Another option must select the methods. Patterns have the syntax
// of [WithMethods]; at least one is required, and repeated options add their patterns.
//
// The call begins with the first message: its latency, and the delay of its hedges, count from
// there. A hedge sends that message again, and closes its side when the caller does. A second message
// from the caller makes the primary win, or goes to the hedge that has won, and counts in
// stats.Counts.SecondRequest. While more than one in 16 streams of a method has a second message,
// the method is not hedged, and its calls count in stats.Counts.NotReplayable.
func WithSingleRequest(patterns ...string) Option {
	return adding("WithSingleRequest", patterns, func(c *settings.Config) *[]string { return &c.SingleRequest })
}

// WithServiceConfig hedges the methods that have a hedgingPolicy in a gRPC service config, as gRPC
// defines it: see docs/configuration.md. New returns an error for a value that gRPC rejects. Pass
// the same JSON to grpc.WithDefaultServiceConfig, which reads the other fields. The last of repeated
// options applies. Alone, the option selects the methods with a policy. Otherwise the other options
// select methods, and the delay of a method without a policy is learned.
//
// A policy is the least specific rule for its methods: options of [WithMethodOptions] override it, and
// other options do not. It has no budget, as in gRPC, unless a rule for the method sets one: the
// retryThrottling limits its hedges. Every other reason not to send a hedge applies.
func WithServiceConfig(json string) Option {
	parsed, err := rpc.ParseServiceConfig(json)
	if err != nil {
		err = fmt.Errorf("hedge: WithServiceConfig: %w", err)
	}
	return option("WithServiceConfig", notForMethods, err, func(c *settings.Config) { c.ServiceConfig = parsed }, json)
}

// WithMaxHedges sets the maximum number of hedges per call: 0 to 4; the default is 2. With 0 no call
// is hedged, and latencies are still learned. A hedge that its server turned away, or whose connection
// was cut, does not count: see [stats.Resets]. A call has at most five attempts.
func WithMaxHedges(n int) Option {
	err := refuse(n < 0 || n > race.MaxHedges, "WithMaxHedges(%d): must be 0 to %d", n, race.MaxHedges)
	return option("WithMaxHedges", anywhere, err, func(c *settings.Config) { c.MaxHedges = n }, n)
}

// WithBudgetPercent sets the budget, in hedges per 100 calls of a target: 0 to 400, fractions
// allowed; the default is 10. With 0 no call is hedged. All methods of a target share its budget.
func WithBudgetPercent(p float64) Option {
	err := refuse(!(p >= 0 && p <= settings.MaxBudgetPercent), "WithBudgetPercent(%v): must be 0 to %d",
		p, settings.MaxBudgetPercent)
	return option("WithBudgetPercent", anywhere, err, func(c *settings.Config) { c.BudgetPercent = p }, p)
}

// WithControl sets the size of the control group, in percent of the calls that may be hedged: 0 to
// 100; the default is 0. Calls of the control group, drawn at random, are never hedged, so that
// [stats.Gain] can measure the gain of the others. At one percent of 100 calls per second, the
// half-width of the 95% confidence interval of p99 is a quarter after ten minutes and an eighth
// after half an hour, or more if slow calls are clustered.
func WithControl(percent float64) Option {
	err := refuse(!(percent >= 0 && percent <= 100), "WithControl(%v): must be 0 to 100", percent)
	return option("WithControl", anywhere, err, func(c *settings.Config) { c.Control = percent }, percent)
}

// WithDryRun(true) sends no hedge and reports the predicted effect of hedging on real traffic. The
// default is false. stats.Counts.DryRun counts the calls that would have been hedged.
//
// After 200 calls of a method, stats.Method.Forecasts predicts its tail and its extra load at
// budgets of 2, 5, 10 and 20 percent, whatever [WithBudgetPercent] is, for hedges as fast as
// primaries and independent of them. The tail is p99.
func WithDryRun(on bool) Option {
	return option("WithDryRun", anywhere, nil, func(c *settings.Config) { c.DryRun = on }, on)
}

// WithOff(true) leaves calls unhedged, including calls with the call option [After]. Latencies are
// still learned. New accepts the option alone, and then learns every method. The default is false.
func WithOff(off bool) Option {
	return option("WithOff", anywhere, nil, func(c *settings.Config) { c.Off = off }, off)
}

// WithGuard(false) turns off the guard, which holds back hedges that exhaust a rate limit: see
// [stats.Guard]. The budget and the throttle still limit hedges. The default is true.
func WithGuard(on bool) Option {
	return option("WithGuard", anywhere, nil, func(c *settings.Config) { c.Guard = on }, on)
}

// WithNonFatalCodes replaces the set of non-fatal statuses. The default is every status but the
// final ones: InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated,
// FailedPrecondition, OutOfRange and Unimplemented. With an empty list every error is final. New
// returns an error for OK, and for codes that gRPC does not define. A hedgingPolicy has its own set.
//
// A primary that fails with a non-fatal status while a hedge is in flight does not end the race.
//
// A hedge of a read-only method can also end the race with a final status that a gRPC server sent.
// A hedge of any other method can end it only with OK: its NOT_FOUND may be the effect of the
// primary's own deletion. If no attempt succeeds, the caller gets the primary's error.
func WithNonFatalCodes(nonFatal ...codes.Code) Option {
	err := checkCodes("WithNonFatalCodes", nonFatal)
	final := rpc.CodesBut(nonFatal)
	return option("WithNonFatalCodes", anywhere, err, func(c *settings.Config) { c.Final = final },
		asArgs(nonFatal)...)
}

// WithFailover makes the next hedge of a call due at once when an attempt fails with one of the codes.
// An empty list means Unavailable, the code of a broken connection. For HTTP, Unavailable includes a
// transport error and the statuses 502, 503 and 504, and for [Do] a [net.Error]. By default only a cut
// connection makes a hedge due (see [stats.Resets]): a primary that fails otherwise before any hedge
// was sent returns its error.
//
// The same budget pays for slow calls and failed ones, and [WithMaxHedges] limits both. If the budget
// is exhausted, or the server has pushed back, the call returns the primary's error at once, as it
// does if all attempts fail. Calls of the warm-up fail over too. The codes are non-fatal:
// see [WithNonFatalCodes]. A hedgingPolicy replaces the codes by its own non-fatal ones.
// New returns an error for OK, and for codes that gRPC does not define.
func WithFailover(on ...codes.Code) Option {
	err := checkCodes("WithFailover", on)
	failover := rpc.CodesOf(on...)
	if len(on) == 0 {
		failover = rpc.CodesOf(codes.Unavailable)
	}
	return option("WithFailover", anywhere, err, func(c *settings.Config) { c.Failover = failover },
		asArgs(on)...)
}

// checkCodes returns an error for each code that is not the code of an error.
func checkCodes(option string, all []codes.Code) (err error) {
	for _, code := range all {
		invalid := code == codes.OK || code > rpc.MaxCode
		err = errors.Join(err, refuse(invalid, "%s(%v): must be the code of an error", option, code))
	}
	return err
}

// WithHedgeLimit limits the hedges of a target to n in any interval of per, whatever the budget: over
// all its connections, and for [Do] and HTTP too. n is at least 1, and per at least a millisecond. By
// default there is no limit until a server closes connections because of resets: see [stats.Resets].
//
// A hedge that its server turned away does not count, nor does one without which a call fails because
// its connection was cut. A hedge with a destination of its own counts at both targets.
func WithHedgeLimit(n int, per time.Duration) Option {
	err := refuse(n < 1 || per < time.Millisecond,
		"WithHedgeLimit(%d, %v): must be at least 1 hedge, in at least %v", n, per, time.Millisecond)
	limit := &guard.HedgeLimit{N: n, Per: per}
	return option("WithHedgeLimit", notForMethods, err, func(c *settings.Config) { c.HedgeLimit = limit }, n, per)
}

// WithWindow sets the window, the time for which latencies are remembered: 10 ms or more; the
// default is 30 s. The last 1,000 calls of a method are remembered for up to 720 windows. A shorter
// window follows changes faster, but estimates quantiles from fewer calls.
func WithWindow(d time.Duration) Option {
	const least = 10 * time.Millisecond
	err := refuse(d < least, "WithWindow(%v): must be at least %v", d, least)
	return option("WithWindow", forScheduler, err, func(c *settings.Config) { c.Window = d }, d)
}

// WithMaxMethods sets how many methods a scheduler remembers: 1 or more; the default is 5,000. The
// same method of two targets counts twice. A method without a call for 15 minutes is removed with its
// latencies; [stats.Counts] keeps its counts. At the limit, calls of further methods are not hedged, and
// count under the target and method "(other)".
//
// The limit bounds the memory of a scheduler:
//
//	4 KB             a method with a few calls
//	27 KB            a busy method
//	58 KB            a busy method with latencies from 1 ms to 1 s
//	0.7 MB           a method with latencies of every length
//	2 KB             a target
//	19 to 290 MB     5,000 methods
//	as a method      each class of WithClass
//	up to 420 KB     each control group of WithControl, per method
func WithMaxMethods(methods int) Option {
	err := refuse(methods < 1, "WithMaxMethods(%d): must be at least 1", methods)
	return option("WithMaxMethods", forScheduler, err, func(c *settings.Config) { c.MaxMethods = methods }, methods)
}

// WithTargetName sets the function that names a connection's target; by default the name is the
// target itself. Targets with the same name share a budget, latencies and rows of [stats.Method].
// It is for clients that generate a new target for each connection, as etcd's does.
//
// name must not be nil, must be deterministic, and must be safe for concurrent use. If it panics,
// the call panics. Names are truncated to 1,024 bytes. The policy of package balancer always uses
// the connection's own target.
func WithTargetName(name func(target string) string) Option {
	err := refuse(name == nil, "WithTargetName(nil): must not be nil")
	return option("WithTargetName", forScheduler, err, func(c *settings.Config) { c.TargetName = name })
}
