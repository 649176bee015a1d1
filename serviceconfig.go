package hedge

import (
	"errors"
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// policy is how a service config has a method hedged.
type policy struct {
	hedges int
	delay  time.Duration
	final  codeSet
}

// policyOf returns the policy of a method, nil if the service config has none for it.
func (c *config) policyOf(fullMethod string) *policy {
	if c.serviceConfig == nil {
		return nil
	}
	p := c.serviceConfig.Policy(fullMethod)
	if p == nil {
		return nil
	}
	final := everyCode
	for _, code := range p.NonFatal {
		final = final.without(code)
	}
	return &policy{hedges: p.Attempts - 1, delay: p.Delay, final: final}
}

// checkServiceConfig finds options that make no sense without another.
func (c *config) checkServiceConfig() error {
	var errs []error
	if c.serviceConfig == nil && c.serviceConfigOnly {
		errs = append(errs, errors.New("hedge: WithServiceConfigOnly(): there is no WithServiceConfig"))
	}
	if c.serviceConfig == nil && c.unbudgeted {
		errs = append(errs, errors.New("hedge: WithServiceConfigUnbudgeted(): there is no WithServiceConfig"))
	}
	return errors.Join(errs...)
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
	return func(c *config) error {
		parsed, err := serviceconfig.Parse(json)
		if err != nil {
			return fmt.Errorf("hedge: WithServiceConfig: %w", err)
		}
		c.serviceConfig = parsed
		return nil
	}
}

// WithServiceConfigOnly hedges no method but those that [WithServiceConfig] has a hedgingPolicy for, and calls with
// the option [After]. Nothing is learned of the others.
func WithServiceConfigOnly() Option {
	return func(c *config) error {
		c.serviceConfigOnly = true
		return nil
	}
}

// WithServiceConfigUnbudgeted has the hedges of methods that [WithServiceConfig] has a hedgingPolicy for cost
// nothing, so that the policy alone bounds them: up to four hedges for each call. The budget stays what it is for
// every other method.
func WithServiceConfigUnbudgeted() Option {
	return func(c *config) error {
		c.unbudgeted = true
		return nil
	}
}

// WithThrottle stops hedges to a target that fails, by the token count with which gRPC defines retryThrottling: it
// starts at maxTokens, 1 to 1000; falls by 1 for each attempt that fails with a non-fatal status, or with a trailer
// that forbids another attempt; rises by ratio for each that succeeds; and stays between 0 and maxTokens. Hedges
// are sent only while it is above half of maxTokens. ratio > 0; its digits past the third decimal are dropped.
//
// Every call through the interceptors counts, of whatever method, hedged or not. The count is the target's: see
// [TargetStats]. It replaces a retryThrottling of [WithServiceConfig]. With neither there is no throttling.
func WithThrottle(maxTokens int, ratio float64) Option {
	return func(c *config) error {
		t, err := serviceconfig.NewThrottle(maxTokens, ratio)
		if err != nil {
			return fmt.Errorf("hedge: WithThrottle(%d, %v): %w", maxTokens, ratio, err)
		}
		c.throttle = t
		return nil
	}
}

// throttling returns the throttle that each target is to have, nil for none.
func (c *config) throttling() *serviceconfig.Throttle {
	if c.throttle == nil && c.serviceConfig != nil {
		return c.serviceConfig.Throttle
	}
	return c.throttle
}
