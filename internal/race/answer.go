package race

import "google.golang.org/grpc/metadata"

// Judge is an attempt, or the entrant for its primary, of a race with [Rules].Judged.
type Judge interface {
	// Accepts reports whether the attempt, which has ended with err, has an answer. It is asked at most once, by the goroutine
	// that made the attempt. open says that an attempt without an answer goes on, as a stream does after its first message:
	// it is then cancelled when another one wins.
	Accepts(err error) (ok, open bool)
}

// verdict is what a Judge says.
type verdict struct{ poor, open bool }

// judge asks an attempt that has ended with err, if the plan says so.
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

// ended returns the event of attempt n, which has ended with err and was judged so.
func ended(p Policy, n uint8, attempt interface{ Trailer() metadata.MD }, err error, v verdict) Event {
	var e Event
	if err != nil {
		e = p.Failure(int(n), err, attempt.Trailer())
	}
	switch {
	case v.poor && err == nil:
		e.End, e.Open = Poor, v.open
	case v.poor && e.End == Final:
		e.End = PoorStatus
	}
	e.Kind, e.Attempt = Ended, n
	return e
}
