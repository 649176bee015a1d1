package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// learn teaches the method, and the class of the request, the latencies of the call's attempts.
func (c *Call) learn(e *End) {
	if !c.Learns || c.off || c.busy || e.Race != nil && e.Race.Panicked {
		return
	}
	if e.Race != nil && e.Race.Served() > 0 {
		c.learnHedges(e)
	}
	p := &e.primary
	cut := p.cutShort || p.known && p.gone && p.err != nil
	if ended := c.Start.Add(p.age); cut || p.known && !p.askedLate && rpc.Answers.HasStatus(p.err) {
		c.Teach(func(l *trigger.Learner) { l.PrimaryEnded(ended, p.age, !cut) })
	}
}

// Teach calls lesson with each learner that learns from the call: the method's and the class's.
func (c *Call) Teach(lesson func(*trigger.Learner)) {
	lesson(&c.method.Learner)
	if c.class != nil {
		lesson(&c.class.Learner)
	}
}

// learnHedges learns the latency of a hedged call and of its hedges, cut short or not. A hedge that
// failed teaches nothing. Nor does a hedge of a repeated call, or of a call with a rejected answer:
// the trigger learns from hedges of slow calls alone.
func (c *Call) learnHedges(e *End) {
	r := e.Race
	if c.estimate != nil && !e.Headers && proves(r) {
		first := r.Attempts[r.Served()].SentAt
		c.Teach(func(l *trigger.Learner) { l.HedgedCall(first, r.DeliveredAt-first, c.maxHedges) })
	}
	if c.settings.Trigger.Kind != settings.AutoTrigger || r.Rejected() > 0 || r.Repeated {
		return
	}
	for n := 1; n <= r.Hedges; n++ {
		a := &r.Attempts[n]
		_, cut := r.Unanswered(n)
		until, err, answered := a.EndedAt, a.Err, true
		switch {
		case e.Headers && n == r.Winner && e.known: // its latency is that of its first message
			until, err = e.Age, e.Err
		case e.Headers && n == r.Winner:
			answered = false
		case cut || e.Headers && a.CutShort:
			until, answered = r.DecidedAt, false
		case !e.Headers && (n == r.Winner && a.End != race.NonFatal || a.CutShort):
		default:
			continue
		}
		if !answered || rpc.Answers.HasStatus(err) {
			c.Teach(func(l *trigger.Learner) { l.HedgeEnded(time.Now(), until-a.SentAt, answered) })
		}
	}
}

// proves reports whether a race shows if hedges of slow calls pay. It does not if the caller gave
// up before an answer, or if a rejected answer or a repetition made the hedges due.
func proves(r *race.Report) bool {
	return r.Rejected() == 0 && !r.Repeated && (rpc.Answers.HasStatus(r.Err) || !r.GaveUp)
}
