package trigger

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/sketch"
)

const (
	lateBy      = 16   // age at which a withheld hedge is sent, in ages at which it was withheld
	withheld    = 1e-3 // withheld hedges of a busy method, per call
	busy        = 3000 // calls per window of a busy method
	keptUndrawn = 120  // greatest age of an undrawn call, in windows: an hour if the window is 30 s

	fewCompared = 8   // least number of undrawn calls, and of hedged ones, that show hedges to be in vain
	pays        = 2.5 // least gain of hedges that are not in vain, in least prices of their load
	inVain      = 0.9 // share of due hedges that are late while hedges are in vain
)

// undrawn holds calls that were slow and were not hedged, because a random draw decided so. Their
// latency is representative of all slow calls. The latency of primaries that hedges cut short is not,
// if the request decides how long its attempts take.
type undrawn struct {
	mu    sync.Mutex // uncontended: few calls are not drawn
	calls []undrawnCall
	next  int // of calls that is replaced
}

// undrawnCall was observed without a hedge between two ages.
type undrawnCall struct {
	at       time.Time
	due      float64 // share of calls that were hedged then
	from, to time.Duration
	answered bool // at to; otherwise it was hedged
}

func (u *undrawn) add(c undrawnCall) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.calls) < 4*few {
		u.calls = append(u.calls, c)
		return
	}
	u.calls[u.next] = c
	u.next = (u.next + 1) % len(u.calls)
}

// since returns the calls since a time, in any order.
func (u *undrawn) since(t time.Time) []undrawnCall {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(u.calls), func(c undrawnCall) bool { return c.at.Before(t) })
}

func (u *undrawn) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls, u.next = nil, 0
}

// Draw returns, at random, the age at which to hedge a call that is slow at age and has the estimate e: 0
// for now, Never if the plan does not hedge the call, lateBy ages for a hedge that is withheld to learn how
// long calls take without it, or a quarter of lateBy ages for one that is late because hedges are in vain.
func (l *Learner) Draw(e *Estimate, age time.Duration) time.Duration {
	switch x := l.draws.Next(); {
	case x < e.Probability*(1-max(e.withhold, e.vain)):
		return 0
	case x < e.Probability*(1-e.withhold):
		return min(lateBy/4*age, Never)
	case x < e.Probability:
		return min(lateBy*age, Never)
	}
	return Never
}

// UndrawnCall records a call for which Draw returned until at the age from. It was answered at the age to,
// or not answered until then: it was hedged or canceled.
func (l *Learner) UndrawnCall(now time.Time, e *Estimate, from, until, to time.Duration, answered bool) {
	if !l.config.Load().Auto {
		return
	}
	calls := &l.undrawn
	if until < min(lateBy*from, Never) {
		calls = &l.late
	}
	calls.add(undrawnCall{at: now, due: e.due, from: from, to: to, answered: answered})
}

// withholds returns the share of due hedges to withhold to learn, if hedges change the tail: less the rarer
// calls are, because a client of few calls would lose much and learn little, and less the more methods share
// the scheduler's calls. From 2·few undrawn calls on, none is withheld until these are half as old as
// undrawn calls that no longer count.
func (l *Learner) withholds(c *Config, now time.Time, due float64) float64 {
	memory, calls := keptUndrawn/2*c.Window, l.schedule.learned.Load()
	busiest := l.owner.Calls.busiest(now, memory, float64(calls-l.counted), &l.recent)
	l.counted = calls
	if due <= 1-reported || len(l.undrawn.since(now.Add(-memory))) >= 2*few {
		return 0
	}
	windows := max(float64(now.Sub(l.owner.Origin))/float64(c.Window), 1)
	rate := min(float64(calls)/windows/busy, 1)
	return withheld / due * rate * rate * busiest
}

// Calls counts the recent calls of all methods of a scheduler. It bounds the hedges that all methods withhold
// to those that the busiest method alone would: a request may be a call of each method, and be as slow as the
// slowest. The zero Calls has counted none.
type Calls struct {
	mu        sync.Mutex
	all, most decaying // of all methods, and of the busiest
}

// busiest adds n calls of a method to its recent calls, own, and returns the busiest method's share of all
// calls; 1 for a nil Calls.
func (a *Calls) busiest(now time.Time, memory time.Duration, n float64, own *decaying) float64 {
	own.add(now, memory, n)
	if a == nil {
		return 1
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.add(now, memory, n)
	a.most.add(now, memory, 0)
	a.most.n = max(a.most.n, own.n)
	return a.most.n / max(a.all.n, 1)
}

// decaying is a count that falls to 1/e within its memory.
type decaying struct {
	n  float64
	at time.Time
}

func (d *decaying) add(now time.Time, memory time.Duration, n float64) {
	if gap := now.Sub(d.at); gap > 0 {
		d.n, d.at = d.n*math.Exp(-gap.Seconds()/memory.Seconds()), now
	}
	d.n += n
}

// vain returns the share of due hedges to send late because they gain little, by measurement alone: hedged
// calls beside undrawn calls, both from the plan's delay on. Where all attempts of a call wait for the same
// thing, the plan expects a gain, because it relies on primaries that hedges cut short. The fewer undrawn
// calls are known, the fewer hedges are late. Beyond the ages at which undrawn calls were observed, no loss counts.
func (p Problem) vain(plan HedgePlan, d *sketch.Distribution, undrawn []undrawnCall) float64 {
	undrawn = slices.DeleteFunc(slices.Clone(undrawn), func(c undrawnCall) bool { return c.to <= plan.Delay })
	hedged := new(sketch.Distribution)
	for _, h := range p.Measured {
		if n := near(plan.Delay, h.Age); n > 0 {
			hedged = hedged.Plus(h.Rest.Times(n))
		}
	}
	if min(len(undrawn), int(hedged.Total())) < fewCompared {
		return 0
	}
	with, without, gain := hedged.Survival(), correct(d, undrawn, fewCompared), 0.0
	due := without.At(plan.Delay + plan.Delay/1000)
	for _, q := range p.points() {
		if q.at > plan.Delay {
			more := q.width * (size(max(without.At(q.at), without.Left)) - size(due*with.At(q.at-plan.Delay)))
			if q.at <= without.last || more > 0 {
				gain += more
			}
		}
	}
	if gain >= pays*budget.LeastPrice*plan.Load {
		return 0
	}
	return inVain * min(float64(len(undrawn))/(2*few), 1)
}

// unhedged is the latency of calls without hedging.
type unhedged struct {
	*sketch.Survival
	primaries *sketch.Distribution
	seen      time.Duration // the age until which undrawn calls show it; beyond, it is a guess
	last      time.Duration // the age at which the last undrawn call was observed; 0: none
}

// correct returns the latency of calls without hedging. From the age at which least undrawn calls were
// observed, it is the latency of undrawn calls, by the product-limit method with delayed entry. The
// primaries, d, show the rest: earlier ages, later ages relative to the last one observed, and slow calls
// in excess of those among which the undrawn calls were drawn, as at the beginning of a fault.
func correct(d *sketch.Distribution, calls []undrawnCall, least float64) unhedged {
	u := unhedged{Survival: d.Survival(), primaries: d}
	if _, cut := d.Count(); cut == 0 || u.Survival == nil {
		return u
	}
	var risk, answered [sketch.Buckets]float64
	then, today, first := 0.0, 0.0, sketch.Buckets
	for _, c := range calls {
		from := min(sketch.Bucket(c.from)+1, sketch.Buckets-1)
		to := max(sketch.Bucket(c.to), from)
		for b := from; b <= to; b++ {
			if risk[b]++; risk[b] >= least {
				first = min(first, b)
			}
		}
		if c.answered {
			answered[to]++
		}
		then, today = then+c.due, today+u.At(c.from+c.from/1000)
	}
	if first == sketch.Buckets {
		return u
	}
	n := float64(len(calls))
	then, today = then/n, today/n
	old := min((then+2*math.Sqrt(then*(1-then)/float64(d.Total())))/today, 1) // share of slow calls

	left, end := 1.0, first // of the undrawn calls
	var beyond [sketch.Buckets]float64
	for b := first; b < sketch.Buckets; b++ {
		if risk[b] > 0 {
			left, end = left*(1-answered[b]/risk[b]), b
		}
		beyond[b] = left
	}
	before, last := u.Survival, max(u.Last, end)
	after := cmp.Or(before.Beyond(end), before.Left, 1) // where the undrawn calls end
	share := func(b int, primaries float64) float64 {
		undrawn := beyond[b] * before.Beyond(first-1)
		if b > end {
			undrawn *= primaries / after
		}
		return old*undrawn + (1-old)*primaries
	}
	beyondLast := old*left*before.Beyond(first-1) + (1-old)*before.Left
	if end < u.Last {
		beyondLast = share(u.Last, before.Left)
	}
	u.Survival = before.With(first, last, func(b int) float64 { return share(b, before.Beyond(b)) }, beyondLast)
	u.last = sketch.UpperEdge(end)
	if u.seen = u.last; left == 0 {
		u.seen = Never
	}
	return u
}

// Unhedged returns percentiles, as quantiles, of latency without hedging. One is 0 if it is unknown: hedges cut
// primaries short before it, and too few undrawn calls show it.
func (l *Learner) Unhedged(now time.Time) (percentile func(q float64) time.Duration) {
	return l.unhedged(now, l.Snapshot(now)).percentile
}

func (l *Learner) unhedged(now time.Time, d *sketch.Distribution) unhedged {
	if l.ended.Load() == 0 { // callers alone cut primaries short
		return unhedged{Survival: d.Survival(), seen: Never}
	}
	return correct(d, l.undrawn.since(now.Add(-keptUndrawn*l.config.Load().Window)), few)
}

// percentile returns a percentile, as a quantile, or 0 if it is not known. Primaries show it if at most a tenth
// as many of them were cut short earlier as exceed it.
func (u unhedged) percentile(q float64) time.Duration {
	if t := Tail(u.Survival, q); t <= u.seen || u.primaries.CutShort(t) <= (1-q)/10 {
		return t
	}
	return 0
}
