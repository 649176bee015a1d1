package whatif

import (
	"fmt"
	"time"

	"github.com/grpchedge/hedge/bench/picture"
)

// A picture has a diagram for each of the largest groups. A curve is drawn through maxPoints
// latencies at most.
const (
	maxPanels = 5
	maxPoints = 100_000
)

// draw draws the latencies without hedging and with the default budget.
func draw(path string, answers []answer) error {
	var panels []picture.Panel
	for _, a := range answers[:min(len(answers), maxPanels)] {
		for _, r := range a.rows {
			if r.budget != drawn {
				continue
			}
			points := int(min(a.of.count, maxPoints))
			panels = append(panels, picture.Panel{
				Title: a.title,
				Noun:  "calls", Value: "latency",
				Curves: []picture.Curve{
					{Label: "without hedging, as measured", Sorted: quantiles(r.Without, points), Look: 0},
					{Label: fmt.Sprintf("with a budget of %d%%, as predicted", drawn), Sorted: quantiles(r.With, points), Look: 1},
				},
			})
		}
	}
	return picture.Write(path, panels)
}

// quantiles returns latencies at evenly spaced quantiles.
func quantiles(of func(q float64) time.Duration, n int) []time.Duration {
	sorted := make([]time.Duration, n)
	for i := range sorted {
		sorted[i] = of((float64(i) + 0.5) / float64(n))
	}
	return sorted
}
