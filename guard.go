package hedge

import "github.com/grpchedge/hedge/internal/engine"

// WithoutGuard turns off the guard that holds back hedges where they make calls fail: see [stats.Guard]. Hedges are then sent
// whatever fails, as far as the budget pays for them and the throttle lets them pass.
func WithoutGuard() Option {
	return named("WithoutGuard", func(c *engine.Config) error {
		c.Guard = false
		return nil
	})
}
