package hedge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// Option sets something other than its default in [New], which reports an option that is out of range.
type Option func(*config) error

// MaxHedges is the most hedges that one call can have beside its primary: gRPC bounds the attempts of a call
// to five.
const MaxHedges = 4

// config is what the options set, with every default explicit.
type config struct {
	trigger        Trigger
	target         float64 // percentile that Auto makes small, as a quantile
	dryRun         bool
	class          func(ctx context.Context, method string, request any) string // nil: no classes
	control        float64                                                      // WithControl: the share of calls that are never hedged
	maxHedges      int
	budgetPercent  float64
	estimatedRPS   float64 // 0: the budget is filled by traffic
	minDelay       time.Duration
	warmupCalls    int
	warmupDelay    time.Duration // 0: no hedge while learning
	window         time.Duration
	methods        []string // WithMethods: patterns of methods that may be hedged
	readOnly       []string // WithReadOnlyMethods: the same, of methods that only read
	idempotentOnly bool
	all            bool // WithAllMethods
	final          codeSet

	otherBackendOnly  bool
	serviceConfig     *serviceconfig.Config // nil: none
	serviceConfigOnly bool
	unbudgeted        bool                    // methods with a policy
	throttle          *serviceconfig.Throttle // of WithThrottle; nil: none
}

func defaultConfig() config {
	return config{
		trigger:       Auto(),
		target:        0.99,
		maxHedges:     2,
		budgetPercent: 10,
		minDelay:      time.Millisecond,
		warmupCalls:   20,
		window:        30 * time.Second,
		final:         answers,
	}
}

// defaultPercentile is the trigger's quantile unless another is set.
const defaultPercentile = 0.90

func newConfig(opts []Option) (config, error) {
	c := defaultConfig()
	var errs []error
	for _, opt := range opts {
		if opt != nil {
			errs = append(errs, opt(&c))
		}
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, c.checkServiceConfig(), c.checkSelection())
	}
	return c, errors.Join(errs...)
}

// WithPercentile is short for [WithTrigger] of [Percentile]: a call gets its first hedge when it has lasted longer
// than the quantile q of what the method's primaries took lately. 0 < q < 1.
func WithPercentile(q float64) Option {
	return func(c *config) error {
		t := Percentile(q)
		if err := t.validate(); err != nil {
			return fmt.Errorf("hedge: WithPercentile(%v): %w", q, err)
		}
		c.trigger = t
		return nil
	}
}

// WithMaxHedges bounds the hedges of one call, beside its primary. 0 to [MaxHedges]; the default is 2. With 0
// no call is hedged, and latencies are still learned.
func WithMaxHedges(n int) Option {
	return func(c *config) error {
		if n < 0 || n > MaxHedges {
			return fmt.Errorf("hedge: WithMaxHedges(%d): the number of hedges must be 0 to %d", n, MaxHedges)
		}
		c.maxHedges = n
		return nil
	}
}

// WithBudgetPercent sets how many hedges a target's calls may cost: p per 100 calls, 0 to 400, fractions
// allowed; the default is 10. With 0 no call is hedged. The budget is the target's, shared by its methods.
func WithBudgetPercent(p float64) Option {
	return func(c *config) error {
		if !(p >= 0 && p <= 400) {
			return fmt.Errorf("hedge: WithBudgetPercent(%v): the percentage must be 0 to 400", p)
		}
		c.budgetPercent = p
		return nil
	}
}

// WithEstimatedRPS fills the budget by the clock, as if each target had r calls per second, instead of by the
// calls that it really has: r·p/100 tokens a second for a budget of p percent. r > 0 and finite. Most users
// need no such estimate: without it the budget follows the traffic.
func WithEstimatedRPS(r float64) Option {
	return func(c *config) error {
		if !(r > 0) || math.IsInf(r, 0) {
			return fmt.Errorf("hedge: WithEstimatedRPS(%v): the rate must be positive and finite", r)
		}
		c.estimatedRPS = r
		return nil
	}
}

// WithMinDelay sets a floor under every learned delay, so that a method that answers in microseconds is not
// hedged over scheduling noise. 0 or more; the default is 1 ms.
func WithMinDelay(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return fmt.Errorf("hedge: WithMinDelay(%v): the delay must not be negative", d)
		}
		c.minDelay = d
		return nil
	}
}

// WithWarmup sets how many calls of a method are watched before its delay is trusted, and the delay used
// until then; 0 sends no hedge while learning. Neither may be negative; the defaults are 20 and 0.
func WithWarmup(calls int, delay time.Duration) Option {
	return func(c *config) error {
		if calls < 0 {
			return fmt.Errorf("hedge: WithWarmup(%d, %v): the number of calls must not be negative", calls, delay)
		}
		if delay < 0 {
			return fmt.Errorf("hedge: WithWarmup(%d, %v): the delay must not be negative", calls, delay)
		}
		c.warmupCalls, c.warmupDelay = calls, delay
		return nil
	}
}

// WithWindow sets the age at which an observed latency starts to be forgotten. 10 ms or more; the default is
// 30 s. A shorter window follows a changing service faster and estimates its quantiles from fewer calls.
func WithWindow(d time.Duration) Option {
	return func(c *config) error {
		if d < minWindow {
			return fmt.Errorf("hedge: WithWindow(%v): the window must be at least %v", d, minWindow)
		}
		c.window = d
		return nil
	}
}

const minWindow = 10 * time.Millisecond

// WithNonFatalCodes replaces the set of statuses that do not end a race. A race in which an attempt fails with
// one of them goes on while another attempt is in flight; any other status ends it, and is what the caller
// gets. It does not make hedging a retry: a primary that fails before a hedge was sent returns its error at
// once.
//
// By default all statuses are non-fatal but those by which a server says that it looked at the request and
// answered: InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated, FailedPrecondition,
// OutOfRange and Unimplemented. With an empty list every error ends the race, as in a gRPC hedgingPolicy
// without nonFatalStatusCodes.
func WithNonFatalCodes(nonFatal ...codes.Code) Option {
	return func(c *config) error {
		final := everyCode
		for _, code := range nonFatal {
			if code == codes.OK || code > maxCode {
				return fmt.Errorf("hedge: WithNonFatalCodes(%v): not the code of an error", code)
			}
			final = final.without(code)
		}
		c.final = final
		return nil
	}
}
