package race

// Judge is an attempt, or the entrant for its primary, that says whether its own end is accepted. It is asked in a race with
// [Rules].Judged.
type Judge interface {
	// Accepts reports whether the end of the attempt, with err, is accepted. If not, it is a poor answer. Accepts is called at
	// most once, on the goroutine that made the attempt. open says that a poor attempt must keep its context for as long as it
	// may still win: a stream goes on after its first message, and a value of hedge.Do may depend on its context.
	Accepts(err error) (ok, open bool)
}

// verdict is what a Judge says.
type verdict struct{ poor, open bool }

// judge asks an attempt that has ended with err whether that is accepted. Without Rules.Judged it is.
func (p *Plan) judge(attempt any, err error) (v verdict) {
	if !p.Judged {
		return verdict{}
	}
	if j, ok := attempt.(Judge); ok {
		accepted, open := j.Accepts(err)
		v = verdict{poor: !accepted, open: open}
	}
	return v
}

// ended returns the event for the end of attempt n with err, of which v is the verdict.
func ended(p Policy, n uint8, attempt interface{ Seen() Seen }, err error, v verdict) Event {
	var e Event
	if err != nil {
		e = p.Failure(int(n), err, attempt.Seen())
	}
	switch {
	case v.poor && err == nil:
		e.End, e.Open = PoorReply, v.open
	case v.poor && e.End == Final:
		e.End = PoorStatus
	}
	e.Kind, e.Attempt = Ended, n
	return e
}
