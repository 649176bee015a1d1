package hedge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/pattern"
	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// Option sets something other than its default in [New], which reports an option that is out of range.
type Option func(*engine.Config) error

func newConfig(opts []Option) (engine.Config, error) {
	c := engine.DefaultConfig()
	var errs []error
	for _, opt := range opts {
		if opt != nil {
			errs = append(errs, opt(&c))
		}
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, checkServiceConfig(&c), checkSelection(&c))
	}
	return c, errors.Join(errs...)
}

// Which methods may be hedged.

// WithIdempotentOnly hedges only methods whose protobuf definition sets the option idempotency_level to
// NO_SIDE_EFFECTS or IDEMPOTENT, and those of [WithReadOnlyMethods]. The definition is looked up among the
// descriptors linked into the program; a method that is not found there is not hedged, and counted as
// NoDescriptor. Together with [WithMethods], a method must satisfy both.
func WithIdempotentOnly() Option {
	return func(c *engine.Config) error {
		c.IdempotentOnly = true
		return nil
	}
}

// WithReadOnlyMethods hedges the full methods that match one of the patterns, and says that they only read, as the
// option idempotency_level = NO_SIDE_EFFECTS of a .proto file does. The syntax is that of [WithMethods], and the two
// add up. A hedge of such a method may end the call with a final status, such as NOT_FOUND, where a hedge of any other
// method ends it only with OK: see [WithNonFatalCodes]. Where replicas lag, that NOT_FOUND may be an old answer.
func WithReadOnlyMethods(patterns ...string) Option {
	return func(c *engine.Config) error { return addPatterns(&c.ReadOnly, "WithReadOnlyMethods", patterns) }
}

// WithMethods hedges the full methods that match one of the patterns, such as "/pkg.Svc/Get" or "/pkg.Svc/Get*";
// the syntax is that of [path.Match], so that * stands for any run of characters but a slash. Given more than
// once, the patterns add up. Calls of other methods are made as without hedging, and nothing is learned from them.
func WithMethods(patterns ...string) Option {
	return func(c *engine.Config) error { return addPatterns(&c.Methods, "WithMethods", patterns) }
}

// WithAllMethods hedges every method that no other option leaves out. All of them must bear to run twice: a hedged
// write may be carried out twice.
func WithAllMethods() Option {
	return func(c *engine.Config) error {
		c.All = true
		return nil
	}
}

// WithServiceConfigOnly hedges no method but those that [WithServiceConfig] has a hedgingPolicy for, and calls with
// the option [After]. Nothing is learned of the others.
func WithServiceConfigOnly() Option {
	return func(c *engine.Config) error {
		c.ServiceConfigOnly = true
		return nil
	}
}

// checkSelection refuses to guess which methods may run twice.
func checkSelection(c *engine.Config) error {
	if len(c.Methods) > 0 || len(c.ReadOnly) > 0 || c.IdempotentOnly || c.ServiceConfigOnly || c.All {
		return nil
	}
	return errors.New("hedge: New: no option says which methods may run twice; give one of WithIdempotentOnly, " +
		"WithReadOnlyMethods, WithMethods, WithServiceConfigOnly and WithAllMethods")
}

func addPatterns(to *[]string, option string, patterns []string) error {
	if len(patterns) == 0 {
		return fmt.Errorf("hedge: %s(): at least one pattern is needed", option)
	}
	for _, p := range patterns {
		if err := pattern.Check(p); err != nil {
			return fmt.Errorf("hedge: %s(%q): %w", option, p, err)
		}
	}
	*to = append(*to, patterns...)
	return nil
}

// How they are hedged.

// WithTrigger sets how the delay after which calls are hedged is found: see [Auto], [Percentile] and [Fixed]. The
// default is Auto().
func WithTrigger(t Trigger) Option {
	return func(c *engine.Config) error {
		if err := t.validate(); err != nil {
			return fmt.Errorf("hedge: WithTrigger(%v): %w", t, err)
		}
		c.Trigger = engine.Trigger{Kind: t.kind, Quantile: t.quantile, Delay: t.delay}
		return nil
	}
}

// MaxHedges is the most hedges that one call can have beside its primary: gRPC bounds the attempts of a call
// to five.
const MaxHedges = 4

// WithMaxHedges bounds the hedges of one call, beside its primary. 0 to [MaxHedges]; the default is 2. With 0
// no call is hedged, and latencies are still learned.
func WithMaxHedges(n int) Option {
	return func(c *engine.Config) error {
		if n < 0 || n > MaxHedges {
			return fmt.Errorf("hedge: WithMaxHedges(%d): the number of hedges must be 0 to %d", n, MaxHedges)
		}
		c.MaxHedges = n
		return nil
	}
}

// WithBudgetPercent sets how many hedges a target's calls may cost: p per 100 calls, 0 to 400, fractions
// allowed; the default is 10. With 0 no call is hedged. The budget is the target's, shared by its methods.
func WithBudgetPercent(p float64) Option {
	return func(c *engine.Config) error {
		if !(p >= 0 && p <= 400) {
			return fmt.Errorf("hedge: WithBudgetPercent(%v): the percentage must be 0 to 400", p)
		}
		c.BudgetPercent = p
		return nil
	}
}

// WithMinDelay sets a floor under every learned delay, so that a method that answers in microseconds is not
// hedged over scheduling noise. 0 or more; the default is 1 ms.
func WithMinDelay(d time.Duration) Option {
	return func(c *engine.Config) error {
		if d < 0 {
			return fmt.Errorf("hedge: WithMinDelay(%v): the delay must not be negative", d)
		}
		c.MinDelay = d
		return nil
	}
}

// WithWarmup sets how many calls of a method are watched before its delay is trusted, and the delay used
// until then; 0 sends no hedge while learning. Neither may be negative; the defaults are 20 and 0.
func WithWarmup(calls int, delay time.Duration) Option {
	return func(c *engine.Config) error {
		if calls < 0 {
			return fmt.Errorf("hedge: WithWarmup(%d, %v): the number of calls must not be negative", calls, delay)
		}
		if delay < 0 {
			return fmt.Errorf("hedge: WithWarmup(%d, %v): the delay must not be negative", calls, delay)
		}
		c.WarmupCalls, c.WarmupDelay = calls, delay
		return nil
	}
}

// WithNonFatalCodes replaces the set of statuses that do not end a race. A race whose primary fails with one of them
// goes on while a hedge is in flight; any other status of the primary ends it, and is what the caller gets. It does
// not make hedging a retry: a primary that fails before a hedge was sent returns its error at once.
//
// The set holds for the hedges of a method too if the method is known to only read: its descriptor says
// NO_SIDE_EFFECTS, or [WithReadOnlyMethods] names it. A hedge of any other method ends the race only with OK, whatever
// the set: its NOT_FOUND may come from the primary's own deletion. If no attempt succeeds, the caller gets the
// primary's error. A method with a hedgingPolicy has the policy's own set, for each attempt: see [WithServiceConfig].
//
// By default all statuses are non-fatal but those by which a server says that it looked at the request and
// answered: InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated, FailedPrecondition,
// OutOfRange and Unimplemented. With an empty list every such error ends the race, as in a gRPC hedgingPolicy without
// nonFatalStatusCodes.
func WithNonFatalCodes(nonFatal ...codes.Code) Option {
	return func(c *engine.Config) error {
		for _, code := range nonFatal {
			if code == codes.OK || code > engine.MaxCode {
				return fmt.Errorf("hedge: WithNonFatalCodes(%v): not the code of an error", code)
			}
		}
		c.Final = engine.AllBut(nonFatal)
		return nil
	}
}

// WithOtherBackendOnly sends a hedge only where it can meet a backend that no attempt of its call has used. The
// policy hedge_other_backend of package balancer must be installed on the connection: it knows that another one is
// ready, and picks it. A hedge that is not sent for this reason counts as NoOtherBackend, and is considered again
// later while its call lasts.
//
// Where all attempts go out at once, with a delay of 0, hedges wait until the primary has its backend.
//
// Without the policy nothing is known of backends, so that no hedge is sent at all, and [TargetStats].NoBackendPolicy says
// so. A service config that a resolver brings replaces the one of grpc.WithDefaultServiceConfig, and the policy named in
// it, unless grpc.WithDisableServiceConfig is given.
// Calls without a connection of gRPC's, as [Do] makes them, have no backends and are hedged as without the option.
func WithOtherBackendOnly() Option {
	return func(c *engine.Config) error {
		c.OtherBackendOnly = true
		return nil
	}
}

// WithClass has latency be learned, and calls be hedged, for each class of requests of a method: a tenant, a priority, the
// length of a prompt, the size of what is asked for. of names the class of a request; "" is none. [BySize] is such a function.
//
// Where the request decides how long a call takes, one delay for all of a method is too late for the cheap requests and too
// early for the dear ones. A method has at most 16 classes, and all further ones share one named [OtherClass]; a name is cut off at
// 64 bytes. While a class has too few calls, what is known of the method stands in. The budget stays the target's.
//
// of runs on the caller's goroutine, once for each call of a unary method and once for the request of a server stream, and
// must be safe for concurrent use. It must not change the request. A panic in it is the caller's, and what it takes to return
// is added to every call. For [Do] the request is nil. Nil, the default, means no classes.
func WithClass(of func(ctx context.Context, method string, request any) string) Option {
	return func(c *engine.Config) error {
		c.Class = of
		return nil
	}
}

// WithServiceConfig hedges the methods that have a hedgingPolicy in a gRPC service config as gRPC defines it. The
// JSON is the one that gRPC takes: what gRPC ignores in it is ignored, and what gRPC rejects is an error that
// names the method, the field and the value. Other fields, such as timeout or retryPolicy, are for the channel:
// give it the same JSON. Of several such options the last counts.
//
// A method with a policy has up to maxAttempts attempts, 5 at most, the primary included and whatever
// [WithMaxHedges] says, each hedgingDelay after the one before, 0 meaning all at once. An attempt that fails with
// one of the nonFatalStatusCodes sends the next hedge at once, a primary too; any other status ends the call. If
// all attempts fail, the call ends with the last failure. Neither the state of the connection nor a deadline that
// is near holds a hedge back. The throttle, [WithOtherBackendOnly] and the budget do, the latter unless
// [WithServiceConfigUnbudgeted] is given; a hedge that it does not
// pay for is considered again later while an attempt is in flight, and otherwise the call ends. A stream is committed
// to the attempt whose response headers come first.
//
// The other methods keep the delay that is learned for them, or are not hedged [WithServiceConfigOnly]. [WithMethods],
// [WithIdempotentOnly], [Off] and [After] mean for a method with a policy what they mean for any: After replaces the
// delay, and nothing else of the policy. A retryThrottling in the config does what [WithThrottle] does.
func WithServiceConfig(json string) Option {
	return func(c *engine.Config) error {
		parsed, err := serviceconfig.Parse(json)
		if err != nil {
			return fmt.Errorf("hedge: WithServiceConfig: %w", err)
		}
		c.ServiceConfig = parsed
		return nil
	}
}

// WithServiceConfigUnbudgeted has the hedges of methods that [WithServiceConfig] has a hedgingPolicy for cost
// nothing, so that the policy alone bounds them: up to four hedges for each call. The budget stays what it is for
// every other method.
func WithServiceConfigUnbudgeted() Option {
	return func(c *engine.Config) error {
		c.Unbudgeted = true
		return nil
	}
}

// checkServiceConfig finds options that make no sense without another.
func checkServiceConfig(c *engine.Config) error {
	var errs []error
	if c.ServiceConfig == nil && c.ServiceConfigOnly {
		errs = append(errs, errors.New("hedge: WithServiceConfigOnly(): there is no WithServiceConfig"))
	}
	if c.ServiceConfig == nil && c.Unbudgeted {
		errs = append(errs, errors.New("hedge: WithServiceConfigUnbudgeted(): there is no WithServiceConfig"))
	}
	return errors.Join(errs...)
}

// WithThrottle stops hedges to a target that fails, by the token count with which gRPC defines retryThrottling: it
// starts at maxTokens, 1 to 1000; falls by 1 for each attempt that fails with a non-fatal status, or with a trailer
// that forbids another attempt; rises by ratio for each that succeeds; and stays between 0 and maxTokens. Hedges
// are sent only while it is above half of maxTokens. ratio > 0; its digits past the third decimal are dropped.
//
// Every call through the interceptors counts, of whatever method, hedged or not. The count is the target's: see
// [TargetStats]. It replaces a retryThrottling of [WithServiceConfig]. With neither there is no throttling.
func WithThrottle(maxTokens int, ratio float64) Option {
	return func(c *engine.Config) error {
		t, err := serviceconfig.NewThrottle(maxTokens, ratio)
		if err != nil {
			return fmt.Errorf("hedge: WithThrottle(%d, %v): %w", maxTokens, ratio, err)
		}
		c.Throttle = t
		return nil
	}
}

// WithDryRun sends no hedge and reports what it would do: [Stats] counts in DryRun the calls that would have been hedged,
// and [TargetStats] has Forecasts of the tail and the extra load at budgets of 2, 5, 10 and 20 percent, once 200 calls of
// a method are known, whatever [WithBudgetPercent] says. They are of the percentile that [TargetPercentile] sets, and of the
// 99th with another trigger than [Auto]. So hedging can be judged on real traffic before it is turned on. A
// forecast takes hedges to be as fast as primaries and independent of them; [Auto] says where they are not.
func WithDryRun() Option {
	return func(c *engine.Config) error {
		c.DryRun = true
		return nil
	}
}

// WithControl leaves a share of the calls that may be hedged unhedged, to be compared with the others: percent of them, 0 to
// 50; the default is 0. They are drawn by chance, call by call, so both groups see the same requests, backends and hours.
// [TargetStats] has the comparison.
//
// A control group costs its calls what hedging would have saved them. One percent of 100 calls a second is enough for a p99
// that is known within a quarter after ten minutes. The calls of both groups fill the budget alike. What is learned from the
// control group is not bent by hedging, whatever the requests have in common.
func WithControl(percent float64) Option {
	return func(c *engine.Config) error {
		if !(percent >= 0 && percent <= 50) {
			return fmt.Errorf("hedge: WithControl(%v): the percentage must be 0 to 50", percent)
		}
		c.Control = percent / 100
		return nil
	}
}

// What is remembered.

// WithWindow sets the age at which an observed latency starts to be forgotten. 10 ms or more; the default is
// 30 s. A shorter window follows a changing service faster and estimates its quantiles from fewer calls.
func WithWindow(d time.Duration) Option {
	return func(c *engine.Config) error {
		if d < minWindow {
			return fmt.Errorf("hedge: WithWindow(%v): the window must be at least %v", d, minWindow)
		}
		c.Window = d
		return nil
	}
}

const minWindow = 10 * time.Millisecond

// WithMaxMemory bounds what a scheduler remembers, in bytes of live heap: 1 MiB or more; the default is 64 MiB. While the
// bound is exceeded the methods that are used least leave with all that was learned of them, and a target leaves with its
// last method. Their calls stay counted in [Stats]. A method that is called again after it has left is learned anew.
//
// Methods that were called once leave first, the oldest of them first; then those that were not called for longest,
// approximately. So method names that are made up, however many, do not displace methods in use.
//
// A method takes about 2 KB when it has had a few calls, 10 to 50 KB while it is called many times a second, the wider its
// latencies spread the more, and 620 KB at the very most; a target takes 700 bytes. So the default has room for about
// 30,000 methods that are called seldom, or 2,000 busy ones. Each class of [WithClass] takes as much as a method, and a
// control group of [WithControl] up to 420 KB a method. The garbage collector's own overhead comes on top, as with any live
// heap.
//
// To find a method that is not known takes a lock and a few microseconds. Where more methods are in use than there is room
// for, that is so for many calls, and methods leave before they are learned: allow for more memory.
func WithMaxMemory(bytes int64) Option {
	return func(c *engine.Config) error {
		if bytes < minMemory {
			return fmt.Errorf("hedge: WithMaxMemory(%d): the memory must be at least %d bytes", bytes, minMemory)
		}
		c.MaxMemory = bytes
		return nil
	}
}

const minMemory = 1 << 20

// WithTargetName keeps what is known of a connection's target under the name that the function gives it: budget, latencies
// and [TargetStats]. Targets of one name share all of it. It is for clients that make up a target for each connection, as
// etcd's does with a pointer in it, so that nothing that one connection learned is found again by the next.
//
// The function is called when a call meets a target that is new to the scheduler, and now and then again for one that is
// not; never for every call. It must give the same name each time, and may be called concurrently. A panic in it is that of
// the call. Of a name longer than 1,024 bytes the beginning counts. The function must not be nil. By default a target is
// named by itself.
//
// The policy of package balancer goes by the connection's own target, whatever its name.
func WithTargetName(name func(target string) string) Option {
	return func(c *engine.Config) error {
		if name == nil {
			return errors.New("hedge: WithTargetName(nil): there must be a function")
		}
		c.TargetName = name
		return nil
	}
}
