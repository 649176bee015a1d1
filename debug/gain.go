package debug

import (
	"fmt"

	"github.com/grpchedge/hedge/stats"
)

// GainChart is what was measured of a percentile with and without hedging. It names what measured it, because follow-up does
// not show what hedges do to the queues of servers, and a control group does.
func (r row) GainChart() *chart {
	gain, control := r.Stats.Gain, r.Stats.Control
	percentile := 99.0
	c := &chart{}
	var values []stats.Interval
	var latencies []pair
	add := func(class, label string, v stats.Interval) {
		text := label + ": " + short(v.Value)
		if v.High > 0 {
			text += " (" + interval(v) + ")"
		}
		c.Spans = append(c.Spans, span{Class: class, Label: text})
		values, latencies = append(values, v), append(latencies, pair{v.Value}, pair{v.Low, v.High})
	}
	if gain.Measured {
		percentile = gain.Percentile
		add("with", "with hedging", stats.Interval{Value: gain.Hedged})
		add("without", "without, follow-up", gain.Unhedged)
		c.Notes = append(c.Notes, "Follow-up: "+plural(int64(gain.Followed), "loser")+" ran to the end. "+followUpLimit)
	}
	if control != nil {
		if unhedged := at(control.Unhedged, percentile); unhedged.High > 0 {
			if !gain.Measured {
				add("with", "with hedging", at(control.Hedgeable, percentile))
			}
			add("without", "without, control group", unhedged)
			c.Notes = append(c.Notes, "Control group: "+plural(control.Unhedged.Calls, "call")+" never hedged. "+controlShows)
		}
	}
	x := timeAxis(latencies, 1.5, chartLeft, chartRight)
	if x == nil {
		return nil
	}
	c.XTicks = timeTicks(x)
	for i, v := range values {
		s := &c.Spans[i]
		s.Y, s.At = chartTop+(chartBottom-chartTop)*(float64(i)+0.7)/float64(len(values)), x.at(float64(v.Value))
		if v.High > 0 {
			s.Low, s.High = x.at(float64(v.Low)), x.at(float64(v.High))
		}
	}
	c.Title = fmt.Sprintf("p%g with and without hedging", percentile)
	return c
}

const (
	followUpLimit = "It does not show what hedges do to the queues of servers."
	controlShows  = "It also shows what hedges do to the queues of servers."
)

// at returns a percentile of a group; the zero Interval if it is not one of those that are kept.
func at(g stats.Group, percentile float64) stats.Interval {
	return map[float64]stats.Interval{50: g.P50, 99: g.P99, 99.9: g.P999}[percentile]
}

// interval formats a 95% interval.
func interval(i stats.Interval) string {
	if i.High == 0 {
		return "too few calls to say"
	}
	return short(i.Low) + " to " + short(i.High)
}
