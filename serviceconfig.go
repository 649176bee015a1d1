package hedge

import (
	"errors"
	"fmt"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// WithServiceConfig hedges the methods that have a hedgingPolicy in a gRPC service config, as gRPC defines it. json is the
// service config that gRPC takes. Fields that gRPC ignores are ignored. What gRPC rejects is an error that names the method,
// the field and the value. Other fields, such as timeout or retryPolicy, are for the channel: pass the same JSON to
// grpc.WithDefaultServiceConfig. If the option is given more than once, the last one applies.
//
// A method with a policy has up to maxAttempts attempts, including the primary, and 5 at most; [WithMaxHedges] does not
// apply. Each attempt is sent one hedgingDelay after the one before, or all at once if that is 0. If an attempt, also the
// primary, fails with one of the nonFatalStatusCodes, the next hedge is sent at once. Any other status ends the call. If all
// attempts fail, the call returns the last failure. A stream is decided by the attempt whose response headers come first.
//
// The throttle, [WithOtherBackendOnly] and the budget can hold back a hedge of such a method. The budget does not with
// [WithServiceConfigUnbudgeted]. A hedge that the budget does not pay for is considered again later while an attempt is in
// flight; if none is, the call ends. The state of the connection and a near deadline do not hold back a hedge.
//
// Other methods keep their learned delay, unless [WithServiceConfigOnly] is given. [WithMethods], [WithIdempotentOnly] and
// [Off] also apply to methods with a policy. [After] replaces the delay of the policy, and nothing else of it. A
// retryThrottling in the config does the same as [WithThrottle].
func WithServiceConfig(json string) Option {
	return named("WithServiceConfig", func(c *engine.Config) error {
		parsed, err := serviceconfig.Parse(json)
		if err != nil {
			return fmt.Errorf("hedge: WithServiceConfig: %w", err)
		}
		c.ServiceConfig = parsed
		return nil
	})
}

// WithServiceConfigUnbudgeted makes the hedges of methods with a hedgingPolicy free, so that only the policy limits them: up
// to four hedges for each call. Calls of these methods then add nothing to the budget, which still limits all other methods.
// Without [WithServiceConfig] it is an error.
func WithServiceConfigUnbudgeted() Option {
	return named("WithServiceConfigUnbudgeted", func(c *engine.Config) error {
		c.Unbudgeted = true
		return nil
	})
}

// WithServiceConfigOnly hedges only methods that have a hedgingPolicy in [WithServiceConfig], and calls with the option
// [After]. Nothing is learned of other methods. Without WithServiceConfig it is an error.
func WithServiceConfigOnly() Option {
	return named("WithServiceConfigOnly", func(c *engine.Config) error {
		c.ServiceConfigOnly = true
		return nil
	})
}

// WithThrottle stops hedges to a target that fails, in the way that gRPC defines for retryThrottling. Each target has a
// token count. It starts at maxTokens, 1 to 1000. It falls by 1 for each attempt that fails with a non-fatal status, or with
// a trailer that forbids another attempt. It rises by ratio for each success. It stays between 0 and maxTokens. Hedges are
// sent only while it is above half of maxTokens. ratio must be above 0; only its first three decimals count.
//
// Every unary call and server stream through the interceptors counts, of any method, hedged or not. [stats.Method] has the
// count. This option replaces a retryThrottling of [WithServiceConfig]. With neither there is no throttling.
func WithThrottle(maxTokens int, ratio float64) Option {
	return named("WithThrottle", func(c *engine.Config) error {
		t, err := serviceconfig.NewThrottle(maxTokens, ratio)
		if err != nil {
			return fmt.Errorf("hedge: WithThrottle(%d, %v): %w", maxTokens, ratio, err)
		}
		c.Throttle = t
		return nil
	})
}

// checkServiceConfig returns an error for options that need WithServiceConfig if that is missing.
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
