package learn

import (
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

// HedgeAnswered records that a hedge answered at now, having taken d from when it was sent.
func (l *Learner) HedgeAnswered(now time.Time, d time.Duration) {
	if w := l.hedges.open(l.config.Load()); w != nil {
		w.Observe(now, d)
	}
}

// HedgeCancelled records that a hedge was cancelled at now, unanswered d after it was sent.
func (l *Learner) HedgeCancelled(now time.Time, d time.Duration) {
	if w := l.hedges.open(l.config.Load()); w != nil {
		w.ObserveLonger(now, d)
	}
}

// Hedged records that a hedged call has ended, and whether a hedge answered it.
func (l *Learner) Hedged(won bool) {
	if won {
		l.hedges.won.Add(1)
	} else {
		l.hedges.lost.Add(1)
	}
}

// HedgedCall records what a hedged call took for its caller: its first hedge was sent at the given age, it took so much
// longer from then on, and it could have had so many hedges.
func (l *Learner) HedgedCall(age, rest time.Duration, hedges int) {
	if l.config.Load().Auto {
		l.mailbox.put(ended{age, rest, hedges})
	}
}

// outcomes is what is known of a method's hedges.
type outcomes struct {
	memory    *sketch.Meter                 // counts the window's memory; nil: none does
	window    atomic.Pointer[sketch.Window] // what they took from when they were sent; nil until there is one
	won, lost atomic.Int64                  // hedged calls since the last look
}

// open returns the window, made now if need be. It is nil if it was forgotten at this moment.
func (o *outcomes) open(c *Config) *sketch.Window {
	w := o.window.Load()
	if w == nil {
		made := sketch.NewKeeping(o.memory, c.Window, asHedges)
		if !o.window.CompareAndSwap(nil, made) {
			made.Release()
		}
		w = o.window.Load()
	}
	return w
}

// forget drops what is known.
func (o *outcomes) forget() {
	if w := o.window.Swap(nil); w != nil {
		w.Release()
	}
	o.count()
}

// count returns how many hedged calls ended since it was last asked, and how many of them a hedge answered.
func (o *outcomes) count() (hedged, won int64) {
	won = o.won.Swap(0)
	return won + o.lost.Swap(0), won
}

// hedgeDistribution is the survival function of hedges. What is known of primaries stands in as long as few were seen.
func (l *Learner) hedgeDistribution(now time.Time, primary *sketch.Survival) *sketch.Survival {
	d := l.hedgesBelieved(l.HedgeSnapshot(now))
	return sketch.Mix(primary, asHedges, d.Survival(), float64(d.Total()))
}

// asHedges is for how many hedges what is known of primaries counts, as long as few hedges were seen.
const asHedges = 300
