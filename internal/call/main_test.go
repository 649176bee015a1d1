package call_test

import (
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// hedgesKnown is how many hedges of a call's method are known of.
func hedgesKnown(c *call.Call) int64 {
	return int64(c.Learned.Knowledge(time.Now()).Hedges.Total() + 0.5)
}

// configFor is the configuration in force for a method of a target.
func configFor(s *hedge.Scheduler, target, method string) settings.Config {
	c := registry.Of(s).Config()
	return *c.ForMethod(c.ForTarget(target), method)
}
