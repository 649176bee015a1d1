package engine

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/race"
)

// OffWire says that the attempts of the call are no streams of its target's connections, as those of hedge.Do: losers are
// cancelled, and nothing is known of resets.
func (c *Call) OffWire() { c.offWire, c.repeatable = true, false }

// planAlone is the plan of a call that gets no hedge but may have to be repeated, because resets were sent lately.
func (c *Call) planAlone() (race.Plan, bool) {
	if !c.repeatable || !c.method.target.resets.recently(c.start.Sub(c.engine.epoch)) {
		return race.Plan{}, false
	}
	return race.Plan{Rules: race.Rules{HedgeFinal: c.hedgeFinal()}, Start: c.start}, true
}

// Lost counts the losers of the call's race, and returns those that are left to run to their end. Only those in may can be
// left.
func (c *Call) Lost(losers, may race.Attempts) (left race.Attempts) {
	if c.offWire {
		return 0
	}
	now := time.Now()
	left = c.method.target.resets.lost(losers, may, now, now.Sub(c.engine.epoch))
	if n := left.Count(); n > 0 {
		c.method.counters.update(func(s *Stats) { s.Left += int64(n) })
	}
	return left
}

// LeftEnded says that a loser that was left has ended. It may be called from any goroutine.
func (c *Call) LeftEnded() { c.method.target.resets.left.Add(-1) }

// Used says which connection a hedge of the call has used; nil if it is not known. It may be called concurrently.
func (c *Call) Used(p *peer.Peer) {
	if c.method == nil || p == nil || p.Addr == nil || p.LocalAddr == nil {
		return
	}
	c.method.target.resets.used(p.LocalAddr.String(), p.Addr.String(), time.Now())
}

// mostRepeats is how often a call is repeated.
const mostRepeats = 2

// Repeats reports whether the next attempt of the call, which has failed with err, is to be sent at once: its connection was
// cut because of resets, and its method may run twice. If so, that is counted. Only the caller's goroutine may call it.
func (c *Call) Repeats(err error) bool {
	if !c.repeatable || c.repeats >= mostRepeats || c.ctx.Err() != nil || !c.noteCut(err) {
		return false
	}
	c.repeats++
	c.method.counters.update(func(s *Stats) { s.Repeated++ })
	return true
}

// Decides reports whether err is the outcome of a call that was repeated. That is a success, or a status by which a hedge
// could end the call.
func (c *Call) Decides(err error) bool {
	return err == nil || (c.settings.policy != nil || c.settings.onlyReads) && c.final().has(err)
}

// noteCut has the target learn from a failure if that says that the connection was cut. It reports whether resets are to
// blame. It may be called concurrently.
func (c *Call) noteCut(err error) bool {
	cut, certain := cutOff(err)
	if !cut || c.offWire || c.method == nil {
		return false
	}
	now := time.Now()
	r := &c.method.target.resets
	return r.recently(now.Sub(c.engine.epoch)) && r.cut(c.start, certain, now)
}

// CutOff has the target learn from a failure outside of a race. It reports whether the call is to be repeated.
func (c *Call) CutOff(err error) bool {
	return c.noteCut(err) && c.repeatable && c.repeats < mostRepeats
}

// cutOff reports whether err says that the connection was cut while the call was in flight, and whether the server gave an
// excess as the reason. gRPC has no code of its own for that, so the text decides.
func cutOff(err error) (cut, certain bool) {
	s, ok := status.FromError(err)
	if !ok {
		return false, false
	}
	switch s.Code() {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.ResourceExhausted:
	default:
		return false, false
	}
	text := s.Message()
	if strings.Contains(text, "ENHANCE_YOUR_CALM") {
		said := !strings.Contains(text, "too_many_pings") // which has nothing to do with resets
		return said, said
	}
	if s.Code() == codes.ResourceExhausted || strings.Contains(text, "while dialing") || strings.Contains(text, "preface") {
		return false, false
	}
	for _, t := range cutTexts {
		if strings.Contains(text, t) {
			return true, false
		}
	}
	return false, false
}

// cutTexts are parts of the texts of grpc-go for a connection that ended.
var cutTexts = []string{
	"error reading from server: ",
	"closing transport due to: ",
	"transport is closing",
	"connection reset by peer",
	"broken pipe",
}
