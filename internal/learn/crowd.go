package learn

import (
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// crowd tells whether calls wait for each other, so that hedges make all of them slower. Where backends have queues that are nearly
// full, even the fastest calls take now longer and now shorter, all of them together. Where attempts are slow by chance, requests
// differ in size, or one backend stalls, the fastest calls stay as fast. Where backends change their speed, most calls become as fast.
type crowd struct{ full bool } // are the queues

const (
	fastest = 0.1   // of calls, which wait for nothing
	slight  = 0.004 // change of that share, which is no reason, however many calls show it

	// Of full queues, by the median change in standard errors. It is 0.67 by chance.
	begins = 3.7
	ends   = 1.0

	fewChanges = 6   // below which nothing can be told
	enough     = 50  // calls of a step
	sudden     = 0.4 // share of them that are as fast: the backends have changed their speed
)

// waits reports whether few hedges are to be sent, by how much the share of calls that are as fast as the window's fastest changes
// from one step of the window to the next. The median change counts: a stall, an outage or a deploy is few of them.
func (c *crowd) waits(w *sketch.Window, now time.Time) bool {
	fast, _ := w.Snapshot(now).Quantile(fastest)
	steps := w.Steps(now)
	var changes []float64
	faster := false
	for n, d := range steps {
		faster = faster || d.Total() >= enough && 1-d.Beyond(fast) > sudden
		if next := steps[n+1]; next != nil {
			chance := fastest * (1 - fastest) * (1/float64(d.Total()) + 1/float64(next.Total()))
			changes = append(changes, math.Abs(d.Beyond(fast)-next.Beyond(fast))/math.Sqrt(chance+2*slight*slight))
		}
	}
	median := 0.0
	if slices.Sort(changes); !faster && len(changes) >= fewChanges {
		median = changes[len(changes)/2]
	}
	c.full = median > begins || c.full && median > ends
	return c.full
}
