package hedge_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/testserver"
)

// happening is a fault for some time.
type happening struct {
	kind        string
	from, until time.Duration
	backend     int
	method      string  // of a quota
	share       float64 // of requests or attempts that fail; of the method's calls that a quota bears
	byAttempt   bool    // attempts fail each by itself, and not all those of a request
	slow        time.Duration
	code        codes.Code
	words       string
	every       uint64 // of how many requests one is poison
	rate        float64
	settings    settings // of an update
}

func (h happening) String() string {
	s := fmt.Sprintf("%s from %v to %v:", h.kind, h.from, h.until)
	switch h.kind {
	case "words":
		s += fmt.Sprintf(" %v %q, %.2f, by attempt %v, after %v", h.code, h.words, h.share, h.byAttempt, h.slow)
	case "quota":
		s += fmt.Sprintf(" %s %.1f/s", h.method, h.rate)
	case "poison":
		s += fmt.Sprintf(" one request of %d, after %v", h.every, h.slow)
	case "update":
		s += fmt.Sprintf(" %+v", h.settings)
	default:
		s += fmt.Sprintf(" backend %d", h.backend)
	}
	return s
}

// words are of statuses that relay what befell the server's own client.
var words = []string{
	"read tcp 10.0.0.7:52418->10.0.0.9:5432: read: connection reset by peer",
	"write tcp 10.0.0.7:52418->10.0.0.9:5432: write: broken pipe",
	"error reading from server: EOF",
	"http2: server sent GOAWAY and closed the connection; LastStreamID=11, ErrCode=ENHANCE_YOUR_CALM, debug=\"too_many_resets\"",
	"transport is closing",
}

func (w *world) drawFault(r *rand.Rand) happening {
	h := happening{
		kind:    oneOf(r, "words", "quota", "crash", "poison", "drain", "stall", "update"),
		from:    calm + time.Duration(r.Float64()*0.9*float64(faulty)),
		backend: r.IntN(w.backends),
	}
	if h.kind == "quota" && w.settings.unguarded {
		h.kind = "stall" // nothing keeps hedges without the guard from using up a quota
	}
	h.until = min(h.from+time.Duration((0.02+0.98*r.Float64())*float64(faulty)), calm+faulty)
	switch h.kind {
	case "words":
		h.code, h.words = oneOf(r, codes.Unavailable, codes.Internal, codes.Unknown), oneOf(r, words...)
		h.share, h.byAttempt, h.slow = oneOf(r, 0.02, 0.2, 1), chance(r, 0.5), oneOf(r, 0, 5*ms, 200*ms)
	case "quota":
		h.method, h.share = oneOf(r, "Unary", "ServerStream"), oneOf(r, 0.75, 0.25)
		if h.method == "ServerStream" {
			h.share = 0.25
		}
		h.rate = w.rate * oneOf(r, 0.75, 0.25) * (0.5 + r.Float64())
	case "poison":
		h.every, h.slow = uint64(50+r.IntN(500)), oneOf(r, 0, 0, 100*ms)
	case "crash", "drain":
		h.until = min(h.until, h.from+time.Minute)
	case "update":
		h.settings = drawSettings(r, false)
		h.settings.unguarded, h.settings.resets, h.settings.costs = w.settings.unguarded, w.settings.resets, w.settings.costs
		w.share = max(w.share, h.settings.share)
	}
	return h
}

// changes returns what a fault does to attempts, or nil.
func (h happening) changes() func(a testserver.Attempt, at time.Duration, p *testserver.Plan) {
	switch h.kind {
	case "words":
		return func(a testserver.Attempt, _ time.Duration, p *testserver.Plan) {
			number := 0
			if h.byAttempt {
				number = a.Number
			}
			if generator(21, a.ID, number).Float64() < h.share {
				p.Delay, p.Code, p.Message = h.slow, h.code, h.words
			}
		}
	case "quota":
		return h.quota()
	case "poison":
		return func(a testserver.Attempt, _ time.Duration, p *testserver.Plan) {
			if a.ID%h.every == 0 {
				p.Delay, p.Ending = h.slow, testserver.CloseConn
			}
		}
	case "stall":
		return func(a testserver.Attempt, at time.Duration, p *testserver.Plan) {
			if a.Backend == h.backend {
				p.Delay += h.until - at
			}
		}
	}
	return nil
}

// quota lets a method have so many attempts a second, and two seconds' worth at once.
func (h happening) quota() func(testserver.Attempt, time.Duration, *testserver.Plan) {
	var mu sync.Mutex
	tokens, last := 2*h.rate, h.from
	return func(a testserver.Attempt, at time.Duration, p *testserver.Plan) {
		if a.Method != "/hedgetest.TestService/"+h.method {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		tokens, last = min(tokens+h.rate*(at-last).Seconds(), 2*h.rate), at
		if tokens < 1 {
			p.Delay, p.Code, p.Message = 0, codes.ResourceExhausted, "quota"
			return
		}
		tokens--
	}
}

// happen does to servers and to the scheduler what the fault does at its beginning and at its end.
func (h happening) happen(c *client) {
	time.Sleep(h.from)
	switch h.kind {
	case "crash":
		c.cluster.Stop(h.backend)
	case "drain":
		c.cluster.Drain(h.backend)
	case "update":
		c.update(h.settings)
	}
	time.Sleep(h.until - h.from)
	switch h.kind {
	case "crash", "drain":
		_ = c.cluster.Restart(h.backend)
	case "update":
		c.update(c.settings)
	}
}
