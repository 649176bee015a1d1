package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// learn teaches the method, and the class of the request, the latencies of the call's attempts.
func (d *ended) learn() {
	c := d.call
	if !c.Learns || c.off || c.busy || d.Race != nil && d.Race.Panicked {
		return
	}
	if d.Race != nil && d.Race.Served() > 0 {
		d.learnHedges()
	}
	p := &d.primary
	cut := p.cutShort || p.known && p.gone && p.err != nil
	if at := c.Start.Add(p.age); cut || p.known && !p.askedLate && rpc.Answers.HasStatus(p.err) {
		c.Teach(func(l *trigger.Learner) { l.PrimaryEnded(at, p.age, !cut) })
	}
}

// Teach calls lesson with each learner that learns from the call: the method's and the class's.
func (c *Call) Teach(lesson func(*trigger.Learner)) {
	lesson(&c.method.Learner)
	if c.class != nil {
		lesson(&c.class.Learner)
	}
}

// learnHedges learns the latency of a hedged call and of its hedges, cut short or not. The trigger
// learns only from hedges of slow calls: not from a hedge that failed, that repeated a call, or
// that followed a rejected answer.
func (d *ended) learnHedges() {
	c, r := d.call, d.Race
	if c.estimate != nil && !d.headers && proves(r) {
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
		case d.headers && n == r.Winner && d.known: // its first message ends its latency
			until, err = d.Age, d.Err
		case d.headers && n == r.Winner:
			answered = false
		case cut || d.headers && a.CutShort:
			until, answered = r.DecidedAt, false
		case !d.headers && (n == r.Winner && a.End != race.NonFatal || a.CutShort):
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
