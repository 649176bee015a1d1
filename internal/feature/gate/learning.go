package gate

import (
	"time"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// Learning is the observer that teaches a method, and the class of a request, how long attempts take.
type Learning struct {
	Hedges bool // what hedges take is of interest, for the choice of the trigger
}

func (o Learning) Ended(c *feature.CallState, e *feature.End) {
	if !c.Learns || c.Off || c.Busy || e.Race != nil && e.Race.Panicked {
		return
	}
	if e.Race != nil && e.Race.Served() > 0 {
		o.raced(c, e)
	}
	p := &e.Primary
	cut := p.CutShort || p.Known && p.Gone && p.Err != nil
	if ended := c.Start.Add(p.Age); cut || p.Known && !p.AskedLate && rpc.Answers.HasStatus(p.Err) {
		c.Teach(func(l *learn.Learner) { l.PrimaryEnded(ended, p.Age, !cut) })
	}
}

// raced learns the latency of a hedged call and of its hedges, cut short or not. A hedge that failed teaches nothing. Nor does any
// hedge of a call with a rejected answer, or of a repeated one: the trigger learns from hedges of slow calls alone.
func (o Learning) raced(c *feature.CallState, e *feature.End) {
	r := e.Race
	if c.Estimate != nil && !e.Headers && proves(r) {
		first := r.Attempts[r.Served()].SentAt
		c.Teach(func(l *learn.Learner) { l.HedgedCall(first, r.DeliveredAt-first, c.MaxHedges) })
	}
	if !o.Hedges || r.Rejected() > 0 || r.Repeated {
		return
	}
	for n := 1; n <= r.Hedges; n++ {
		a := &r.Attempts[n]
		_, cut := r.Unanswered(n)
		until, err, answered := a.EndedAt, a.Err, true
		switch {
		case e.Headers && n == r.Winner && e.Known: // its first message is what it took
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
			c.Teach(func(l *learn.Learner) { l.HedgeEnded(time.Now(), until-a.SentAt, answered) })
		}
	}
}

// proves reports whether a race shows if hedges of slow calls pay. It does not if the caller gave up before an answer, or if hedges
// had another reason: a rejected answer, or a repetition.
func proves(r *race.Report) bool {
	return r.Rejected() == 0 && !r.Repeated && (rpc.Answers.HasStatus(r.Err) || !r.GaveUp)
}
