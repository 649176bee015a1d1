// Package learn knows what calls of one method took, and concludes from it when they are to be hedged: an [Estimate], which
// every call reads with one atomic load.
//
// It is computed anew about once a second, and more often while little is known. With [Config.Auto] that is a choice: the best
// plan that package knee finds, and a judgement whether hedging pays at all. Without, it is a quantile.
package learn

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Learner learns when a call of one method has become unusually slow. Its methods may be called concurrently, after Start.
type Learner struct {
	window  *sketch.Window           // what primaries took
	current atomic.Pointer[Estimate] // nil until learned
	taken   atomic.Pointer[taken]    // over from another learner; nil: nothing, or no more

	learned  atomic.Int64 // latencies and bounds recorded so far
	nextSize atomic.Int64 // learned at which to compute anew
	nextTime atomic.Int64 // time at which to compute anew, ns after the place's epoch
	lastSize atomic.Int64 // learned when it was last computed
	busy     atomic.Bool  // an estimate is being computed

	hedges  outcomes
	mailbox mailbox
	chance  chance

	config atomic.Pointer[Config]
	place  Place
	run    func(func()) // makes a choice without keeping the caller waiting

	// The rest is used only by the goroutine that computes.
	since     sketch.Mark // start of the current latency regime
	first     time.Time   // when the window was first looked at
	changed   time.Time   // when the regime was last found to have changed; zero if never
	evidence  evidence
	rests     rests
	trickle   *budget.Bucket // nil until hedging first stepped down
	promising int            // how many times in a row hedging would have been worthwhile since it stepped down
	changes   []Change       // not yet told
	noted     stats.StepDown // by the last change that was noted
}

// Place is what a learner needs of the method that it belongs to.
type Place struct {
	Budget   *budget.Bucket  // the target's
	Epoch    time.Time       // what times are counted from
	Memory   *sketch.Meter   // counts the memory of what is learned; nil: none does
	Panicked func()          // is called when an estimate could not be computed because of a panic; nil: none counts
	Looked   func(time.Time) // is called when what is known was looked at, with no lock held; nil: nobody wants to know
	Changed  func(Change)    // is called when what was concluded has changed, with no lock held; nil: nobody wants to know
}

// Start prepares an empty learner.
func (l *Learner) Start(c *Config, p Place) {
	l.config.Store(c)
	l.place = p
	l.run = func(choose func()) { go choose() }
	l.window = sketch.NewKeeping(p.Memory, c.Window, kept)
	l.since = math.MinInt64
	l.hedges.memory, l.mailbox.memory, l.rests.memory = p.Memory, p.Memory, p.Memory
	l.nextTime.Store(neverLearned)
}

// Configure has the learner learn under another configuration from now on. What was learned stays, and is looked at again when
// the next call has ended. The window keeps its length.
func (l *Learner) Configure(c *Config) {
	if *l.config.Load() != *c {
		l.config.Store(c)
		l.nextSize.Store(0)
	}
}

// Config is what it learns under now.
func (l *Learner) Config() *Config { return l.config.Load() }

// Estimate is what was concluded when the window was last looked at. It never changes.
type Estimate struct {
	Delay       time.Duration  // of the first hedge, and from each hedge to the next
	Probability float64        // with which a hedge that is due is sent
	Hedges      int            // the most of one call
	Trickle     *budget.Bucket // what pays when hedging has stepped down; nil otherwise
	Median      time.Duration  // of primaries
	Choice      *stats.Choice  // nil without Auto, and while there are too few calls for a choice

	under *Config     // what it was made under
	since sketch.Mark // of the calls that it was made from
	until time.Time   // when it has become old
}

// MadeUnder reports whether the estimate was made under a configuration.
func (e *Estimate) MadeUnder(c *Config) bool { return *e.under == *c }

// Stats returns the choice that is in force; zero without one. e may be nil.
func (e *Estimate) Stats() stats.Choice {
	if e == nil || e.Choice == nil {
		return stats.Choice{}
	}
	return *e.Choice
}

// Estimate returns what is in force, nil while the method is being learned.
func (l *Learner) Estimate() *Estimate { return l.current.Load() }

// EstimateFor returns what is in force for a call that begins at now, nil while the method is being learned. It looks again at
// what was learned if calls ended since that was last done, and time has passed.
func (l *Learner) EstimateFor(now time.Time) *Estimate {
	e := l.current.Load()
	if e != nil && now.After(e.until) && l.lookAgain(now) {
		return l.current.Load()
	}
	return e
}

// Median is the median latency, 0 while it is being learned.
func (l *Learner) Median() time.Duration {
	if e := l.current.Load(); e != nil {
		return e.Median
	}
	return 0
}

// Draw decides whether a hedge that is due is sent, with the given probability.
func (l *Learner) Draw(probability float64) bool { return l.chance.take(probability) }

// Snapshot is the distribution of what primaries took over the window, and of what was taken over.
func (l *Learner) Snapshot(now time.Time) *sketch.Distribution {
	return l.believed(l.window.Snapshot(now))
}

// HedgeSnapshot is the distribution of what hedges took over the window, from when they were sent.
func (l *Learner) HedgeSnapshot(now time.Time) *sketch.Distribution {
	w := l.hedges.window.Load()
	if w == nil {
		return &sketch.Distribution{}
	}
	return w.Snapshot(now)
}

// Observe records that a primary answered at now, having taken d.
func (l *Learner) Observe(now time.Time, d time.Duration) {
	l.window.Observe(now, d)
	l.refresh(now)
}

// ObserveLonger records that a primary took longer than d: it was cut short at now, at the age d.
func (l *Learner) ObserveLonger(now time.Time, d time.Duration) {
	l.window.ObserveLonger(now, d)
	l.refresh(now)
}

// refresh computes the estimate anew if that is due. The caller has just recorded something.
func (l *Learner) refresh(now time.Time) {
	n := l.learned.Add(1)
	c := l.config.Load()
	at := int64(now.Sub(l.place.Epoch))
	if n >= l.nextSize.Load() || l.worthAnotherLook(c, n, at, stale) {
		l.look(c, now, n)
	}
}

// lookAgain computes the estimate anew, for a call that begins, if that is due, and reports whether it was. What was learned
// last in a burst of calls comes from those that were fastest. The next burst must not go by that.
func (l *Learner) lookAgain(now time.Time) bool {
	n, at, c := l.learned.Load(), int64(now.Sub(l.place.Epoch)), l.config.Load()
	return n > l.lastSize.Load() && l.worthAnotherLook(c, n, at, staleForNext) && l.look(c, now, n)
}

// look computes the estimate anew, after n records, unless too little is known for one, another goroutine does so, or it is not
// this learner's turn.
func (l *Learner) look(c *Config, now time.Time, n int64) bool {
	known, at := n+l.takenCalls(), int64(now.Sub(l.place.Epoch))
	if known < int64(c.WarmupCalls) || !l.busy.CompareAndSwap(false, true) {
		return false
	}
	interval := int64(c.Window / refreshes)
	early, choosing := c.Auto && known >= earlyFrom, c.Auto && known >= autoFrom
	paced := early && c.Pace.take(at)
	if choosing && !paced {
		l.nextSize.Store(math.MaxInt64)
		l.nextTime.Store(at + interval/10)
		l.busy.Store(false)
		return false
	}
	// By size as well as by time, so that a fast method does not spend its first second, thousands of calls, on
	// an estimate from its first twenty.
	if choosing {
		l.nextSize.Store(2 * n)
	} else {
		l.nextSize.Store(n + n/4 + 1)
	}
	l.nextTime.Store(at + interval)
	l.lastSize.Store(n)
	if paced {
		// A choice takes longer than a caller should wait for.
		capacity := l.place.Budget.Balance(now).Capacity
		l.run(func() {
			l.conclude(now, func() { l.chooseWithinPace(c, now, capacity) })
			l.follow(c)
		})
		return true
	}
	l.conclude(now, func() {
		all, _ := l.lately(now)
		l.take(c, now, all)
	})
	l.follow(c)
	return true
}

// follow has the estimate computed anew when the next call has ended, if the configuration is another one by now than that
// which it was computed under.
func (l *Learner) follow(c *Config) {
	if l.config.Load() != c {
		l.nextSize.Store(0)
	}
}

// conclude computes the estimate anew. If that panics, which must not end the process, the last estimate stays in force.
func (l *Learner) conclude(now time.Time, compute func()) {
	var changes []Change
	defer func() { // last, so that a function that blocks keeps no estimate from being computed
		for _, c := range changes {
			l.place.Changed(c)
		}
	}()
	defer l.busy.Store(false)
	defer func() { changes, l.changes = l.changes, nil }()
	defer func() {
		if recover() != nil && l.place.Panicked != nil {
			l.place.Panicked()
		}
	}()
	compute()
	if l.place.Looked != nil {
		l.place.Looked(now)
	}
}

// worthAnotherLook reports whether the estimate is to be computed anew because time has passed: when enough calls ended
// since, or when it is so many intervals older than it need be.
func (l *Learner) worthAnotherLook(c *Config, n, at, stale int64) bool {
	next := l.nextTime.Load()
	if at < next || next == neverLearned {
		return false
	}
	return n >= l.lastSize.Load()+newCalls || at >= next+int64(c.Window/refreshes)*stale || !c.Auto
}

// chooseWithinPace makes a choice and counts what it took, even if it panics.
func (l *Learner) chooseWithinPace(c *Config, now time.Time, capacity float64) {
	began := time.Now()
	defer func() { c.Pace.took(time.Since(began)) }()
	l.choose(c, now, capacity)
}

// take has calls hedged at the trigger's quantile of d.
func (l *Learner) take(c *Config, now time.Time, d *sketch.Distribution) {
	if l.learned.Load()+l.takenCalls() < int64(c.WarmupCalls) {
		return // what was taken over has just been forgotten
	}
	delay, ok := d.Quantile(c.Quantile)
	if !ok {
		return // the last estimate is better than none
	}
	// The upper edge of the quantile's bucket: a service that always takes 20 ms must not be hedged because 20 ms
	// was rounded down.
	edge := time.Duration(float64(delay) * (1 + halfBucket))
	l.current.Store(l.following(c, now, d, knee.Plan{Delay: max(edge, c.MinDelay), Probability: 1, Hedges: c.MaxHedges}))
}

// lately returns what is in the window of the current regime, and the newest part of that.
func (l *Learner) lately(now time.Time) (all, newest *sketch.Distribution) {
	if l.first.IsZero() {
		l.first = now
	}
	at := l.window.Newest(now)
	lately := !l.changed.IsZero() && now.Sub(l.changed) < unsettled*l.window.Step()
	before, newest := l.window.Split(now, l.since, at)
	if knee.Changed(before, newest, lately) {
		l.since, l.changed = at, now
		l.note(Change{DistributionChanged: true})
		l.forgetTaken()
		l.forgetHedges()
		return newest, newest
	}
	_, all = l.window.Split(now, l.since, l.since)
	return l.withTaken(all, before), newest
}

// An estimate is computed anew only when so many calls have ended since the last, or after so many times the usual interval.
const (
	newCalls     = 50
	stale        = 9
	staleForNext = 4 // where a call begins: before one that ends can
)

// kept is how many calls are remembered whatever their age.
const kept = 1000

// unsettled is for how many steps after a change of regime the first of them may hold calls of before.
const unsettled = 4

// refreshes is how often an estimate is computed over one window: once a second in the default one.
const refreshes = 30

// halfBucket is how far, relatively, the upper edge of a bucket lies above the value that stands for the bucket, at an
// accuracy of 1%: 1/(1-0.01), rounded up.
const halfBucket = 0.0102

// neverLearned is the nextTime of a learner that has no estimate yet: only nextSize counts.
const neverLearned = math.MaxInt64

// chance decides with a given probability. It runs through the multiples of the golden ratio, modulo 1, which fill the
// interval from 0 to 1 more evenly than random numbers do: what is sent stays close to its share at any time.
type chance struct{ at atomic.Uint64 }

func (c *chance) take(probability float64) bool {
	const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ / φ
	return float64(c.at.Add(golden)>>11)*(1.0/(1<<53)) < probability
}
