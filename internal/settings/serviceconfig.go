package settings

import (
	"time"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// HedgingPolicy is the hedgingPolicy of a method in the service config.
type HedgingPolicy struct {
	Hedges int
	Delay  time.Duration
	Final  codeset.Set
}

// PolicyOf returns the policy of a method, nil if the service config has none for it.
func (c *Config) PolicyOf(fullMethod string) *HedgingPolicy {
	if c.ServiceConfig == nil {
		return nil
	}
	p := c.ServiceConfig.Policy(fullMethod)
	if p == nil {
		return nil
	}
	return &HedgingPolicy{Hedges: p.Attempts - 1, Delay: p.Delay, Final: codeset.AllBut(p.NonFatal)}
}

// Throttling returns the configuration of each target's throttle; nil for none.
func (c *Config) Throttling() *serviceconfig.Throttle {
	if c.ServiceConfig == nil {
		return nil
	}
	return c.ServiceConfig.Throttle
}
