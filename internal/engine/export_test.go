package engine

import (
	"github.com/grpchedge/hedge/internal/settings"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
)

// Book books that a hedge of the call, sent at once, decided it with err after d.
func Book(c *Call, d time.Duration, err error) {
	r := race.Report{Winner: 1, Hedges: 1, Err: err, DecidedAt: d, DeliveredAt: d}
	r.Attempts[0] = race.AttemptReport{CutShort: true}
	r.Attempts[1] = race.AttemptReport{HasEnded: true, EndedAt: d, Err: err}
	if err != nil {
		r.Attempts[1].End = race.Final
	}
	c.Book(&r)
}

// HedgesKnown is how many hedges of a call's method are known of.
func HedgesKnown(c *Call) int64 {
	return int64(c.method.learner.Knowledge(time.Now()).Hedges.Total() + 0.5)
}

// Record has the method of a call learn a latency, as of a hedge's or a primary's, and its class too.
func Record(c *Call, d time.Duration, isHedge bool) {
	c.learners(func(l *learn.Learner) {
		if isHedge {
			l.HedgeAnswered(time.Now(), d)
		} else {
			l.Observe(time.Now(), d)
		}
	})
}

// RecordHedged has the method of a call learn what a hedged call took, after a hedge at the given age, and its class too.
func RecordHedged(c *Call, age, rest time.Duration) {
	c.learners(func(l *learn.Learner) { l.HedgedCall(age, rest, 1) })
}

// Memory is what an engine counts as its own, in bytes.
func Memory(e *Engine) int64 { return e.memory.Bytes() }

// MakeTriggerPanic has the choice of the trigger panic, until the function returned is called.
func MakeTriggerPanic(e *Engine) (undo func()) {
	learning := e.config.Load().learning
	hedges := learning.MaxHedges
	learning.MaxHedges = 1000 // more than package knee has room for
	return func() { learning.MaxHedges = hedges }
}

// ConfigFor is the configuration in force for a method of a target.
func ConfigFor(e *Engine, target, method string) settings.Config {
	c := e.Config()
	return *c.ForTarget(target).ForMethod(&c, method).Config
}
