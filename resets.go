package hedge

import (
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/feature/resets"
)

// WithResetLimit sets how many losing attempts of a target are reset on the wire: at most n in any time of per. n is 0 or
// more, and per at least a millisecond. With n = 0, whatever per, a loser is never reset as long as it can be left to run.
// Without the option all losers are reset until a server says that there were too many resets: see [stats.Resets], which also says
// what happens to the losers that are not reset.
//
// The limit is for all connections to the target together. Servers count for each connection, so a limit that is right for
// one connection is right for many too.
func WithResetLimit(n int, per time.Duration) Option {
	return named("WithResetLimit", func(c *engine.Config) error {
		if n < 0 || per < time.Millisecond && n > 0 || per < 0 {
			return fmt.Errorf("hedge: WithResetLimit(%d, %v): the number must be at least 0, and the time at least %v", n, per, time.Millisecond)
		}
		c.ResetLimit = &resets.Limit{N: n, Per: max(per, time.Millisecond)}
		return nil
	})
}
