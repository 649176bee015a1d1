package followup

import (
	"time"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
)

// CutShort says that so many hedges of a call that was drawn were sent, and that one has answered at now before the primary. It
// returns what Add does.
func (m *Method) CutShort(c *feature.Call, hedges int, now time.Time) *Loser {
	c.FollowUp.Told = true
	return m.Add(now, Call{Drawn: c.FollowUp.Share, Wait: now.Sub(c.Start), Late: true, Hedges: hedges, CutShort: true})
}

// Ended implements [feature.Observer]. A call with a poor answer, or one that was repeated, had hedges for another reason than a
// slow primary.
func (m *Method) Ended(c feature.Call, e feature.End) {
	if !c.FollowUp.On || c.FollowUp.Told || !e.Known || e.FirstMessage {
		return
	}
	end, err := Call{Drawn: c.FollowUp.Share, Wait: e.Age}, e.Err
	if r := e.Race; r != nil {
		p := &r.Attempts[0]
		if r.PoorAnswers() > 0 || r.Repeated {
			return
		}
		end.Hedges, end.CutShort = r.Hedges, p.CutShort
		switch {
		case p.CutShort: // it could not be followed
			end.Wait, end.Drawn = r.DecidedAt, 0
		case p.HasEnded && !e.Gone:
			end.Wait, err = p.EndedAt, p.Err
		}
	}
	answered := codeset.Answers.HasStatus(err)
	if end.GaveUp = e.Gone && !answered; end.CutShort || end.GaveUp || answered {
		end.Late = end.Hedges > 0 || end.Wait >= c.Delay
		m.Add(c.Start.Add(end.Wait), end)
	}
}
