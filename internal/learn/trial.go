package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// trial finds out whether hedges make primaries slower, which they do where backends have queues. Time is cut into periods with few
// hedges and with many, by chance. The median of primaries rises over a period of many, and not over one of few, if hedges are why.
// Nothing tells it without a trial: latencies vary in a full queue as they do where requests come in batches of one size.
type trial struct {
	random *rand.Rand // nil before the first period
	drawn  float64    // for this period, from 0 to 1
	few    bool       // hedges in this period
	from   sketch.Mark
	until  time.Time
	median float64 // the logarithm of the one of the period before; 0 if there is none
	rises  []rise
}

// rise is how much the median of primaries rose over a period, in logarithms.
type rise struct {
	at  time.Time
	few bool // hedges
	by  float64
}

const (
	few        = 1. / 40         // of the budget, in calls that are slow enough for a hedge while few are sent
	mostFew    = 0.95            // of all periods, so that what hedges do stays known
	usual      = 0.15            // rise that hedges may be the reason of while rises do not show it, as a standard deviation
	compared   = 1000            // primaries, at least: medians of fewer differ by chance
	longest    = 10              // steps that a period is longer than the usual three for want of primaries
	remembered = 5 * time.Minute // is a rise
)

// fewNow reports whether few hedges are to be sent. worth is how much more many are worth. A period lasts three steps of the window,
// and longer where calls are few. Its first step does not count. Where calls are too few, nothing can be found out: many are sent.
func (t *trial) fewNow(w *sketch.Window, now time.Time, worth float64) bool {
	t.rises = slices.DeleteFunc(t.rises, func(r rise) bool { return now.Sub(r.at) > remembered })
	switch late := now.Sub(t.until); {
	case t.random == nil:
		t.random = rand.New(rand.NewPCG(uint64(now.UnixNano()), 1))
		t.next(w, now, worth)
	case late > longest*w.Step():
		t.next(w, now, worth)
		t.few, t.median = false, 0
	case late >= 0:
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
	x, _ := d.Quantile(0.5)
	median := logAge(x)
	if t.median != 0 {
		t.rises = append(t.rises, rise{now, t.few, median - t.median})
	}
	t.median = median
}

// chance is the probability that many hedges cost primaries more than they are worth, by the rises so far. Of these, none counts for
// more than thrice the median one, as an outage, or the end of one, is a hundred times as large. Rises that vary for another reason
// say nothing: as long as those with many hedges are not larger by twice the error, hedges are believed to do no more than usual.
func (t *trial) chance(worth float64) float64 {
	sizes := []float64{0}
	for _, r := range t.rises {
		sizes = append(sizes, math.Abs(r.by))
	}
	slices.Sort(sizes)
	most := 3 * sizes[(len(sizes)-1)/2]
	var periods, sum [2]float64 // with many hedges, and with few
	squares := 0.0
	for _, r := range t.rises {
		kind, by := 0, min(max(r.by, -most), most)
		if r.few {
			kind = 1
		}
		periods[kind]++
		sum[kind] += by
		squares += by * by
	}
	if squares == 0 {
		return 0
	}
	varied, known, slower := squares/float64(len(sizes)), 0.0, 0.0
	if many, few := periods[0], periods[1]; many > 0 && few > 0 {
		known = many * few / (many + few)
		slower = (sum[0]/many - sum[1]/few) * known / (known + 1)
	}
	within := math.Sqrt(varied / (known + 1)) // is slower right
	chance := min(beyond((worth-slower)/within), mostFew)
	if slower < 2*within {
		chance = min(chance, beyond(worth/usual))
	}
	return chance
}

// beyond is the probability that a normal variable is so many standard deviations above its mean.
func beyond(deviations float64) float64 { return math.Erfc(deviations/math.Sqrt2) / 2 }
