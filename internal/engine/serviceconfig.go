package engine

import (
	"time"

	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// hedgingPolicy is how a service config has a method hedged.
type hedgingPolicy struct {
	hedges int
	delay  time.Duration
	final  CodeSet
}

// policyOf returns the policy of a method, nil if the service config has none for it.
func (c *Config) policyOf(fullMethod string) *hedgingPolicy {
	if c.ServiceConfig == nil {
		return nil
	}
	p := c.ServiceConfig.Policy(fullMethod)
	if p == nil {
		return nil
	}
	return &hedgingPolicy{hedges: p.Attempts - 1, delay: p.Delay, final: AllBut(p.NonFatal)}
}

// throttling returns the throttle that each target is to have, nil for none.
func (c *Config) throttling() *serviceconfig.Throttle {
	if c.Throttle == nil && c.ServiceConfig != nil {
		return c.ServiceConfig.Throttle
	}
	return c.Throttle
}
