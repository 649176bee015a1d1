package learn

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// trial finds out whether hedges make primaries slower, which they do where backends have queues. Time is cut into periods with few
// hedges and with many, by chance. The median of primaries rises over a period of many, and not over one of few, if hedges are why.
type trial struct {
	random *rand.Rand
	drawn  float64 // for this period, from 0 to 1
	few    bool    // hedges in this period
	from   sketch.Mark
	until  time.Time

	known  bool // what follows
	at     time.Time
	median float64 // the logarithm of the one of the period before
	error  float64 // of that, squared
	rises  [2]rises
}

// rises are those of the median, in logarithms, over periods of one kind.
type rises struct{ calls, sum, squares, errors float64 }

const (
	few        = 1. / 40         // of the budget, in calls that are slow enough for a hedge while few are sent
	mostFew    = 0.95            // of all periods, so that what hedges do stays known
	compared   = 100             // primaries, at least
	remembered = 3 * time.Minute // of which what is known keeps a third of its weight
)

// fewNow reports whether few hedges are to be sent, where many are worth so much more. A period lasts three steps of the window, the
// first of which is not looked at.
func (t *trial) fewNow(w *sketch.Window, now time.Time, worth float64) bool {
	if t.random == nil {
		t.random = rand.New(rand.NewPCG(uint64(now.UnixNano()), 1))
		t.next(w, now, worth)
	} else if !now.Before(t.until) {
		if _, d := w.Split(now, t.from, t.from); d.Total() >= compared {
			t.record(now, d)
			t.next(w, now, worth)
		}
	}
	return t.few && t.drawn < t.chance(worth) // in a stall hedges are suddenly worth more
}

func (t *trial) next(w *sketch.Window, now time.Time, worth float64) {
	t.drawn = t.random.Float64()
	t.few = t.drawn < t.chance(worth)
	t.from, t.until = w.Mark(now.Add(w.Step())), now.Add(3*w.Step())
}

// record compares a period's primaries with those of the period before.
func (t *trial) record(now time.Time, d *sketch.Distribution) {
	logOf := func(q float64) float64 {
		x, _ := d.Quantile(q)
		return logAge(x)
	}
	spread := 0.5 / math.Sqrt(float64(d.Total())) // of the share of calls below the true median
	median, error := logOf(0.5), math.Pow((logOf(0.5+spread)-logOf(0.5-spread))/2, 2)
	if t.known {
		fade := math.Exp(-now.Sub(t.at).Seconds() / remembered.Seconds())
		for i, r := range t.rises {
			t.rises[i] = rises{r.calls * fade, r.sum * fade, r.squares * fade, r.errors * fade}
		}
		kind, rise := 0, median-t.median
		if t.few {
			kind = 1
		}
		r := &t.rises[kind]
		*r = rises{r.calls + 1, r.sum + rise, r.squares + rise*rise, r.errors + error + t.error}
	}
	t.known, t.at, t.median, t.error = true, now, median, error
}

// chance is the probability that many hedges cost primaries more than they are worth, by what is known. Medians that vary hardly more
// than those of independent calls are of primaries that share no queue. How much more they vary is what hedges may be the reason of.
func (t *trial) chance(worth float64) float64 {
	many, few := t.rises[0], t.rises[1]
	periods := many.calls + few.calls + 1
	varied := (many.squares + few.squares) / periods
	shared := varied - 2*(many.errors+few.errors)/periods
	if shared <= 0 {
		return 0
	}
	slower, precision := 0.0, 1/shared
	if many.calls > 0 && few.calls > 0 {
		seen := 1 / varied / (1/many.calls + 1/few.calls)
		precision += seen
		slower = (many.sum/many.calls - few.sum/few.calls) * seen / precision
	}
	return min(math.Erfc((worth-slower)*math.Sqrt(precision/2))/2, mostFew)
}
