package engine

import (
	"time"

	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// hedgingPolicy is the hedgingPolicy of a method in the service config.
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

// throttling returns the configuration of each target's throttle; nil for none.
func (c *Config) throttling() *serviceconfig.Throttle {
	if c.Throttle == nil && c.ServiceConfig != nil {
		return c.ServiceConfig.Throttle
	}
	return c.Throttle
}
