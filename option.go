package hedge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/pattern"
)

// Option is an option of [New] and [Scheduler.Update], which return an error if its value is out of range.
type Option func(*engine.Config) error

// newConfig returns the configuration that options make.
func newConfig(opts []Option) (engine.Config, error) {
	c := engine.DefaultConfig()
	var given []string
	c.Given = &given
	err := apply(&c, opts)
	c.Given, c.Set = nil, given
	if err == nil {
		err = errors.Join(checkServiceConfig(&c), checkSelection(&c), checkRules(&c))
	}
	return c, err
}

// apply applies options to a configuration. The error joins one for each that is out of range.
func apply(c *engine.Config, opts []Option) error {
	var errs []error
	for _, opt := range opts {
		if opt != nil {
			errs = append(errs, opt(c))
		}
	}
	return errors.Join(errs...)
}

// named returns the option of a name.
func named(name string, set func(*engine.Config) error) Option {
	return func(c *engine.Config) error {
		if c.Given != nil {
			*c.Given = append(*c.Given, name)
		}
		return set(c)
	}
}

// Which methods may be hedged.

// WithIdempotentOnly hedges only methods whose protobuf definition sets the option idempotency_level to NO_SIDE_EFFECTS or
// IDEMPOTENT, and those of [WithReadOnlyMethods]. The definition is looked up among the descriptors linked into the program.
// A method without a descriptor is not hedged, and its calls count in stats.Counts.NoDescriptor. Together with [WithMethods], a
// method must satisfy both options. Few public APIs set the option: name their methods with [WithReadOnlyMethods].
func WithIdempotentOnly() Option {
	return named("WithIdempotentOnly", func(c *engine.Config) error {
		c.IdempotentOnly = true
		return nil
	})
}

// WithReadOnlyMethods hedges the full methods that match one of the patterns, and says that they only read, as the option
// idempotency_level = NO_SIDE_EFFECTS of a .proto file does. The syntax is that of [WithMethods]. If both options are given,
// the methods of both are hedged. A hedge of a read-only method may end the call with a final status, such as NOT_FOUND. A
// hedge of any other method ends the call only with OK: see [WithNonFatalCodes]. If a replica lags behind the others, its
// NOT_FOUND may be out of date.
func WithReadOnlyMethods(patterns ...string) Option {
	return named("WithReadOnlyMethods", func(c *engine.Config) error { return addPatterns(&c.ReadOnly, "WithReadOnlyMethods", patterns) })
}

// WithMethods hedges the full methods that match one of the patterns, such as "/pkg.Svc/Get" or "/pkg.Svc/Get*". The syntax
// is that of [path.Match], so * stands for any characters but a slash. At least one pattern is needed. If the option is
// given more than once, all patterns apply. Calls of other methods are not hedged, and nothing is learned from them.
func WithMethods(patterns ...string) Option {
	return named("WithMethods", func(c *engine.Config) error { return addPatterns(&c.Methods, "WithMethods", patterns) })
}

// WithAllMethods hedges every method that no other option excludes. All of them must be safe to run twice: a hedged write
// may be carried out twice.
//
// [New] requires this option or one of [WithIdempotentOnly], [WithReadOnlyMethods], [WithMethods] and
// [WithServiceConfigOnly].
func WithAllMethods() Option {
	return named("WithAllMethods", func(c *engine.Config) error {
		c.All = true
		return nil
	})
}

// checkSelection returns an error if no option says which methods may run twice.
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

// WithTrigger sets how the delay is found after which calls are hedged: see [Auto], [Percentile] and [Fixed]. The default is
// Auto().
func WithTrigger(t Trigger) Option {
	return named("WithTrigger", func(c *engine.Config) error {
		if err := t.validate(); err != nil {
			return fmt.Errorf("hedge: WithTrigger(%v): %w", t, err)
		}
		c.Trigger = engine.Trigger{Kind: t.kind, Quantile: t.quantile, Delay: t.delay}
		return nil
	})
}

// MaxHedges is the most hedges that one call can have in addition to its primary. gRPC limits a call to five attempts.
const MaxHedges = 4

// WithMaxHedges sets the most hedges of one call, in addition to its primary: 0 to [MaxHedges]; the default is 2. With 0 no
// call is hedged, and latencies are still learned.
func WithMaxHedges(n int) Option {
	return named("WithMaxHedges", func(c *engine.Config) error {
		if n < 0 || n > MaxHedges {
			return fmt.Errorf("hedge: WithMaxHedges(%d): the number of hedges must be 0 to %d", n, MaxHedges)
		}
		c.MaxHedges = n
		return nil
	})
}

// WithBudgetPercent sets how many hedges the calls of a target pay for: p per 100 calls, 0 to 400, fractions allowed; the
// default is 10. With 0 no call is hedged. All methods of a target share its budget.
func WithBudgetPercent(p float64) Option {
	return named("WithBudgetPercent", func(c *engine.Config) error {
		if !(p >= 0 && p <= 400) {
			return fmt.Errorf("hedge: WithBudgetPercent(%v): the percentage must be 0 to 400", p)
		}
		c.BudgetPercent = p
		return nil
	})
}

// WithMinDelay sets the least value of every learned delay: 0 or more; the default is 1 ms. Without it, scheduling noise
// would cause hedges of methods that answer in microseconds.
func WithMinDelay(d time.Duration) Option {
	return named("WithMinDelay", func(c *engine.Config) error {
		if d < 0 {
			return fmt.Errorf("hedge: WithMinDelay(%v): the delay must not be negative", d)
		}
		c.MinDelay = d
		return nil
	})
}

// WithWarmup sets how many calls of a method must be seen before its learned delay is used, and the delay that is used until
// then. With a delay of 0 no hedge is sent until then. Neither may be negative; the defaults are 20 and 0.
func WithWarmup(calls int, delay time.Duration) Option {
	return named("WithWarmup", func(c *engine.Config) error {
		if calls < 0 {
			return fmt.Errorf("hedge: WithWarmup(%d, %v): the number of calls must not be negative", calls, delay)
		}
		if delay < 0 {
			return fmt.Errorf("hedge: WithWarmup(%d, %v): the delay must not be negative", calls, delay)
		}
		c.WarmupCalls, c.WarmupDelay = calls, delay
		return nil
	})
}

// WithNonFatalCodes replaces the set of non-fatal statuses. If the primary fails with one of them while a hedge is in
// flight, the race goes on. Any other status of the primary ends the race, and the caller gets it. Hedging is still not a
// retry: if the primary fails before a hedge was sent, the call returns its error at once.
//
// The set also applies to the hedges of a method that only reads: its descriptor says NO_SIDE_EFFECTS, or
// [WithReadOnlyMethods] names it. A hedge of any other method ends the race only with OK, because its NOT_FOUND may be the
// result of the primary's own deletion. If no attempt succeeds, the caller gets the primary's error. A method with a
// hedgingPolicy uses the policy's own set for all attempts: see [WithServiceConfig].
//
// By default all statuses are non-fatal except those by which a server says that it looked at the request and answered:
// InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated, FailedPrecondition, OutOfRange and
// Unimplemented. With an empty list every error is final, as in a gRPC hedgingPolicy without nonFatalStatusCodes. OK, and
// codes that gRPC does not define, are an error.
func WithNonFatalCodes(nonFatal ...codes.Code) Option {
	return named("WithNonFatalCodes", func(c *engine.Config) error {
		for _, code := range nonFatal {
			if code == codes.OK || code > engine.MaxCode {
				return fmt.Errorf("hedge: WithNonFatalCodes(%v): not the code of an error", code)
			}
		}
		c.Final = engine.AllBut(nonFatal)
		return nil
	})
}

// WithOtherBackendOnly sends a hedge only if a backend is ready that no attempt of its call has used. The connection must
// have the load-balancing policy hedge_other_backend of package balancer, which knows the ready backends and picks one for
// the hedge. A hedge that is not sent for this reason counts in stats.Counts.NoOtherBackend, and is considered again later while
// its call lasts. With a delay of 0, hedges wait until a backend was picked for the primary.
//
// On a connection without the policy no hedge is sent, and [stats.Method].NoBackendPolicy is true. A service config from the
// resolver replaces the one of grpc.WithDefaultServiceConfig, and with it the policy, unless grpc.WithDisableServiceConfig
// is given. Calls of [Do] have no connection, and are hedged as without this option.
func WithOtherBackendOnly() Option {
	return named("WithOtherBackendOnly", func(c *engine.Config) error {
		c.OtherBackendOnly = true
		return nil
	})
}

// WithClass has latency be learned, and calls be hedged, for each class of requests of a method: a tenant, a priority, the
// length of a prompt, the size of what is asked for. of names the class of a request; "" is none. [BySize] is such a
// function.
//
// Where the request decides how long a call takes, one delay for all of a method is too late for the cheap requests and too
// early for the costly ones. A method has at most 16 classes, and all further ones share one named [OtherClass]; a name is cut
// off at 64 bytes. While a class has too few calls, what is known of the method stands in. The budget stays the target's.
// After a [Scheduler.Update] with another function, its classes get all places. Of the former classes, those whose names come
// again keep what they have learned. A closure that was made anew is another function.
//
// of runs on the caller's goroutine, once for each call of a unary method and once for the request of a server stream, and
// must be safe for concurrent use. It must not change the request. A panic in it is the caller's, and what it takes to
// return is added to every call. For [Do] the request is nil. Nil, the default, means no classes.
func WithClass(of func(ctx context.Context, method string, request any) string) Option {
	return named("WithClass", func(c *engine.Config) error {
		c.Class = of
		return nil
	})
}

// WithCost says how much a hedge of a request costs, in calls: 1 is the default. It is for methods of which one call reads a
// key and another a million rows, or one prompt has 100 tokens and another 8,000. The budget is then a share of the cost of
// all calls: each call adds its share of its own cost, and each hedge takes the cost of its call. A cost above 10,000 counts
// as 10,000. Costs are rounded to a sixteenth. A cost that is not finite, or is less than 0, counts as 1. stats.Counts.InvalidCosts counts
// these, and [WithLogger] logs the first one of each method.
//
// Choose the unit so that a usual call costs about 1. The bucket then holds what the calls of two seconds earn, and the
// price of the costliest call of the last 30 to 60 seconds at least.
//
// of runs on the caller's goroutine, once for each call that can be hedged, as the function of [WithClass] does, and under
// the same conditions. For [Do] the request is nil. Nil, the default, means that each call costs 1.
func WithCost(of func(ctx context.Context, method string, request any) float64) Option {
	return named("WithCost", func(c *engine.Config) error {
		c.Cost = of
		return nil
	})
}

// WithDryRun sends no hedge and reports what hedging would do, so that it can be judged on real traffic before it is turned
// on. stats.Counts.DryRun counts the calls that would have been hedged. Once 200 calls of a method have been seen,
// stats.Method.Forecasts has predictions of its tail and extra load at budgets of 2, 5, 10 and 20 percent;
// [WithBudgetPercent] does not change these. The tail is the percentile that [TargetPercentile] sets, and p99 with a trigger
// other than [Auto]. A forecast assumes that hedges are as fast as primaries and independent of them; see Auto for when they
// are not.
func WithDryRun() Option {
	return named("WithDryRun", func(c *engine.Config) error {
		c.DryRun = true
		return nil
	})
}

// WithControl leaves a share of the calls that may be hedged unhedged, to be compared with the others: percent of them, 0 to
// 50; the default is 0. They are drawn by chance, call by call, so both groups see the same requests, backends and hours.
// [stats.Method] has the comparison.
//
// A control group costs its calls what hedging would have saved them. One percent of 100 calls a second is enough for a p99
// that is known within a quarter after ten minutes. The calls of both groups fill the budget alike. What is learned from the
// control group is not biased by hedging, whatever the requests have in common.
func WithControl(percent float64) Option {
	return named("WithControl", func(c *engine.Config) error {
		if !(percent >= 0 && percent <= 50) {
			return fmt.Errorf("hedge: WithControl(%v): the percentage must be 0 to 50", percent)
		}
		c.Control = percent
		return nil
	})
}

// What is remembered.

// WithWindow sets how long an observed latency is remembered where there are newer ones: 10 ms or more; the default is 30 s.
// The last 1,000 calls of a method are remembered whatever their age, up to 720 windows. What is older than the window, and
// than these calls, is gone after 16/15 of the window. A shorter window follows changes faster, and estimates quantiles from
// fewer calls.
func WithWindow(d time.Duration) Option {
	return named("WithWindow", func(c *engine.Config) error {
		if d < minWindow {
			return fmt.Errorf("hedge: WithWindow(%v): the window must be at least %v", d, minWindow)
		}
		c.Window = d
		return nil
	})
}

const minWindow = 10 * time.Millisecond

// WithMaxMemory sets how much memory a scheduler uses for what it has learned, in bytes of live heap: 1 MiB or more; the
// default is 64 MiB. Above that, the least used methods are removed, with all that was learned of them. A target is removed
// with its last method. Calls of removed methods stay counted in [stats.Counts]. A method that is called again after its removal is
// learned again from the start.
//
// Methods that were called only once are removed first, the oldest of them first. Then follow, approximately, those that
// were not called for longest. So any number of invalid method names does not displace methods in use.
//
// A method takes about 2 KB when it has had a few calls, 10 to 50 KB while it is called many times a second, the wider its
// latencies spread the more, and 620 KB at the very most; a target takes 1.2 KB. So the default has room for about
// 30,000 methods that are called seldom, or 2,000 busy ones. Each class of [WithClass] takes as much as a method, and a
// control group of [WithControl] up to 420 KB a method. The garbage collector's own overhead comes on top, as with any live
// heap.
//
// The first call of a method, and the first after its removal, takes a lock and a few microseconds. If more methods are in
// use than there is room for, many calls pay this, and methods are removed before they are learned. Set a higher limit then.
func WithMaxMemory(bytes int64) Option {
	return named("WithMaxMemory", func(c *engine.Config) error {
		if bytes < minMemory {
			return fmt.Errorf("hedge: WithMaxMemory(%d): the memory must be at least %d bytes", bytes, minMemory)
		}
		c.MaxMemory = bytes
		return nil
	})
}

const minMemory = 1 << 20

// WithTargetName sets the function that returns the name of a connection's target. Targets with the same name share their
// budget, their latencies and their rows of [stats.Method]. It is for clients that make up a different target for each
// connection, as etcd's does with a pointer in it: without a common name, a new connection has to learn from the start. By
// default the name is the target itself.
//
// The function is called when the scheduler meets a new target, and sometimes again for a known one, but not for every call.
// It must not be nil, must return the same name each time, and may be called concurrently. If it panics, the call panics.
// Names are cut to 1,024 bytes.
//
// The policy of package balancer always uses the connection's own target.
func WithTargetName(name func(target string) string) Option {
	return named("WithTargetName", func(c *engine.Config) error {
		if name == nil {
			return errors.New("hedge: WithTargetName(nil): there must be a function")
		}
		c.TargetName = name
		return nil
	})
}
