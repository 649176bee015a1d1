package guard_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

// server is a target to which hedges are due at a rate, and a server that counts the resets of
// their losers.
type server struct {
	limits guard.Resets
	now    time.Time
	sent   []time.Time // hedges since the last cut
	all    int         // hedges
	cuts   int
	err    error // of calls that a cut fails
}

// silent is gRPC's error for calls in flight on a connection that a server has closed without a
// word.
var silent = status.Error(codes.Unavailable, "error reading from server: EOF")

var tooMany = status.Error(codes.Unavailable,
	`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: `+
		`code: ENHANCE_YOUR_CALM, debug data: "too_many_resets"`)

// ofHTTP is an error of net/http with the status that it has in a race.
type ofHTTP struct{ error }

func (e ofHTTP) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }
func (e ofHTTP) Unwrap() error              { return e.error }

func goAway(code, debug string) error {
	return ofHTTP{fmt.Errorf("http2: server sent GOAWAY and closed the connection; LastStreamID=1999, ErrCode=%s, debug=%q",
		code, debug)}
}

func newServer() *server { return &server{now: time.Unix(1_000_000_000, 0), err: tooMany} }

// serves makes due hedges at a rate for a while. The server cuts the connection at more than most
// resets in per, which fails several calls.
func (s *server) serves(d time.Duration, hedges, most int, per time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(time.Second / time.Duration(hedges))
		if !s.limits.Admit(s.now) {
			continue
		}
		s.all++
		if s.sent = append(s.sent, s.now); most > 0 && s.within(per) > most {
			s.cuts++
			s.sent = nil
			for range 3 {
				s.limits.NoteFailure(s.err, s.now)
			}
		}
	}
}

// within counts the hedges of the last d.
func (s *server) within(d time.Duration) (n int) {
	for i := len(s.sent) - 1; i >= 0 && s.now.Sub(s.sent[i]) < d; i-- {
		n++
	}
	return n
}

// TestResets_Cuts: a server that counts resets and reports it cuts one connection in an hour, however
// many hedges are due. One that cuts without a GOAWAY does so once in 90 s at most, on average. At
// least an eighth of the hedges that it allows are sent.
func TestResets_Cuts(t *testing.T) {
	for _, tc := range longtest.First(6, []struct {
		name         string
		err          error
		hedges, most int
		per          time.Duration
		cuts         int // at most
	}{
		{name: "Armeria", err: tooMany, hedges: 50, most: 400, per: time.Minute, cuts: 1},
		{name: "Apache", err: silent, hedges: 50, most: 25, per: time.Second, cuts: 40},
		{name: "Netty", err: tooMany, hedges: 50, most: 200, per: 30 * time.Second, cuts: 1},
		{name: "Netty, over HTTP", err: goAway("ENHANCE_YOUR_CALM", "flood"), hedges: 50, most: 200, per: 30 * time.Second,
			cuts: 1},
		{name: "Apache, over HTTP", err: ofHTTP{io.ErrUnexpectedEOF}, hedges: 50, most: 25, per: time.Second, cuts: 40},
		{name: "Apache, with unread data", err: ofHTTP{&net.OpError{Op: "read", Err: syscall.ECONNRESET}}, hedges: 50,
			most: 25, per: time.Second, cuts: 40},
		{name: "Netty, slowly", err: tooMany, hedges: 8, most: 200, per: 30 * time.Second, cuts: 1},
		{name: "nghttp2", err: tooMany, hedges: 200, most: 3000, per: time.Minute, cuts: 1},
		{name: "Apache, by many hedges", err: silent, hedges: 500, most: 25, per: time.Second, cuts: 40},
		{name: "Apache, by few more than it allows", err: silent, hedges: 30, most: 25, per: time.Second, cuts: 40},
		{name: "like Armeria", err: silent, hedges: 20, most: 400, per: time.Minute, cuts: 40},
		{name: "like Netty", err: silent, hedges: 50, most: 200, per: 30 * time.Second, cuts: 40},
	}) {
		s := newServer()
		s.err = tc.err
		s.serves(59*time.Minute, tc.hedges, tc.most, tc.per)
		if s.cuts == 0 || s.cuts > tc.cuts || float64(s.all) < float64(tc.most)*float64(time.Hour/tc.per)/8 ||
			tc.cuts == 1 && s.within(time.Minute) < tc.most/8 {
			t.Errorf("%s: %d cuts, %d hedges in an hour, %d in its last minute, limits %+v", tc.name, s.cuts, s.all,
				s.within(time.Minute), s.limits.State(s.now))
		}
	}
}

// TestResets_CutsForOtherReasons: cuts for another reason cost a tenth of the hedges at most, at
// any frequency.
func TestResets_CutsForOtherReasons(t *testing.T) {
	for _, every := range longtest.First(2, []time.Duration{15 * time.Second, 90 * time.Second, 2 * time.Second,
		45 * time.Second, 5 * time.Minute}) {
		for _, hedges := range longtest.First(2, []int{1, 8, 50, 200}) {
			s := newServer()
			for range time.Hour / every {
				s.serves(every, hedges, 0, 0)
				s.limits.NoteFailure(silent, s.now)
			}
			if share := float64(s.all) / float64(hedges) / time.Hour.Seconds(); share < 0.9 {
				t.Errorf("a cut every %v, %d hedges a second: %.3f of them are sent", every, hedges, share)
			}
		}
	}
}

// TestResets_LiftsStepByStep: half of the hedges of the minute before, a fifth more each quarter of
// an hour, all after an hour.
func TestResets_LiftsStepByStep(t *testing.T) {
	s := newServer()
	s.serves(5*time.Minute, 10, 0, 0)
	s.limits.NoteFailure(tooMany, s.now)
	cutAt := s.now
	for _, want := range []float64{4, 4.76, 5.66, 6.73} {
		s.now = s.now.Add(time.Second)
		r := s.limits.State(s.now)
		if ratio := float64(r.Learned) / (600 * want / 8); ratio < 0.95 || ratio > 1.05 || r.Since != cutAt ||
			r.Until != cutAt.Add(time.Hour) {
			t.Errorf("%v after the cut: %+v, want about %v a minute", s.now.Sub(cutAt), r, 600*want/8)
		}
		s.serves(15*time.Minute-time.Second, 10, 0, 0)
		if n := s.within(time.Minute); n > r.Learned || n < r.Learned*9/20 {
			t.Errorf("%v after the cut: %d hedges in a minute under %+v", s.now.Sub(cutAt), n, r)
		}
	}
	if r := s.limits.State(s.now); r != (stats.Resets{}) {
		t.Errorf("an hour after the cut: %+v", r)
	}
	s.serves(time.Minute, 10, 0, 0)
	if n := s.within(time.Minute); n < 599 {
		t.Errorf("%d hedges of 600 in the minute after that", n)
	}
}

// TestResets_WithHedgeLimit: at most n hedges in any interval of per, and as many on average.
func TestResets_WithHedgeLimit(t *testing.T) {
	for _, limit := range []guard.HedgeLimit{{N: 1, Per: time.Second}, {N: 2, Per: time.Second},
		{N: 7, Per: 3 * time.Second}, {N: 200, Per: 30 * time.Second}} {
		s, most, total := newServer(), 0, 0
		s.limits.SetLimit(&limit)
		for range 10 {
			s.now = s.now.Add(limit.Per)
			for range 1000 {
				s.now = s.now.Add(limit.Per / 400)
				if s.limits.Admit(s.now) {
					s.sent, total = append(s.sent, s.now), total+1
					most = max(most, s.within(limit.Per))
				}
			}
		}
		if most > limit.N || total < 10*limit.N {
			t.Errorf("%+v: %d in one period, %d in all of 35", limit, most, total)
		}
		if r := s.limits.State(s.now); r != (stats.Resets{Limit: limit.N, Per: limit.Per}) {
			t.Errorf("the state is %+v, want the limit %+v and nothing learned", r, limit)
		}
		s.limits.SetLimit(nil)
		for range 10 * limit.N {
			if !s.limits.Admit(s.now) {
				t.Errorf("%+v: a hedge is held back after the limit was lifted", limit)
			}
		}
	}
}

// TestResets_BothLimits: a learned limit does not replace the option's limit. A hedge that is given
// back can be sent again.
func TestResets_BothLimits(t *testing.T) {
	s := newServer()
	s.limits.SetLimit(&guard.HedgeLimit{N: 20, Per: time.Second})
	s.serves(5*time.Minute, 10, 0, 0)
	s.limits.NoteFailure(tooMany, s.now)
	s.sent = nil
	s.serves(10*time.Minute, 10, 0, 0)
	if n := s.within(time.Minute); n > 300 || n < 135 {
		t.Errorf("%d hedges a minute, under %+v", n, s.limits.State(s.now))
	}
	s = newServer()
	s.limits.SetLimit(&guard.HedgeLimit{N: 2, Per: time.Hour})
	for range 10 {
		if !s.limits.Admit(s.now) {
			t.Fatal("a hedge is held back although none was sent")
		}
		s.limits.Refund()
	}
	if !s.limits.Admit(s.now) || s.limits.Admit(s.now) {
		t.Error("want exactly one hedge")
	}
}

// TestResets_FailuresThatAreNoCuts: other errors set no limit and do not blame hedges. One cut without
// a reason sets none either.
func TestResets_FailuresThatAreNoCuts(t *testing.T) {
	unavailable := func(text string) error { return status.Error(codes.Unavailable, text) }
	const begins = `closing transport due to: connection error: desc = "error reading from server: EOF"`
	for name, err := range map[string]error{
		"no error":              nil,
		"not a status":          errors.New(status.Convert(tooMany).Message()),
		"another code":          status.Error(codes.Internal, status.Convert(tooMany).Message()),
		"no reason":             unavailable(begins),
		"one cut for no reason": silent,
		"another reason":        unavailable(begins + ", received prior goaway: code: NO_ERROR"),
		"too many pings": unavailable(begins +
			`, received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`),
		"a server's debug data": unavailable(begins +
			`, received prior goaway: code: NO_ERROR, debug data: "code: ENHANCE_YOUR_CALM"`),
		"another reason over HTTP":        goAway("NO_ERROR", ""),
		"too many pings over HTTP":        goAway("ENHANCE_YOUR_CALM", "too_many_pings"),
		"a server's debug data over HTTP": goAway("NO_ERROR", "ErrCode=ENHANCE_YOUR_CALM, debug="),
		"a timeout over HTTP":             status.Error(codes.DeadlineExceeded, "unexpected EOF"),
		"one cut over HTTP":               ofHTTP{io.ErrUnexpectedEOF},
	} {
		s := newServer()
		s.serves(time.Minute, 10, 0, 0)
		for range 3 { // the calls in flight fail together
			blamed, cut := s.limits.NoteFailure(err, s.now), strings.HasPrefix(name, "one cut")
			if blamed != cut || s.limits.State(s.now) != (stats.Resets{}) {
				t.Errorf("%s: hedges are blamed: %t, and a limit is learned: %+v", name, blamed, s.limits.State(s.now))
			}
		}
	}
	s := newServer()
	if s.limits.NoteFailure(tooMany, s.now) {
		t.Error("hedges are blamed although none was sent")
	}
	s.serves(time.Second, 1, 0, 0)
	if s.now = s.now.Add(2 * time.Minute); s.limits.NoteFailure(tooMany, s.now) {
		t.Error("hedges are blamed although none was sent for two minutes")
	}
}

const second = time.Second

// world is a client of one target in virtual time that makes one call after the other.
type world struct {
	now     time.Time
	arrival *rand.Rand // separate, so that calls do not depend on hedges
	random  *rand.Rand
	target  guard.Shared
	methods []*method
	calls   float64
	refuses func(w *world, m *method, attempt int) bool // with RESOURCE_EXHAUSTED; nil: nothing does
	large   float64                                     // the share of calls that every server refuses for their size

	due, sent, failed, made int // hedges and calls, since pass began
}

type method struct {
	guard.Guard
	rate   func(at time.Duration) float64 // calls a second
	wanted float64                        // due hedges a call
	calls  float64
}

var start = time.Unix(1_000_000, 0)

func always(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// newWorld returns a world with one method per rate. One call in ten has a due hedge.
func newWorld(seed uint64, rates ...float64) *world {
	w := &world{now: start, arrival: rand.New(rand.NewPCG(seed, 1)), random: rand.New(rand.NewPCG(seed, 2))}
	for _, rate := range rates {
		w.add(always(rate), 0.1)
	}
	return w
}

func (w *world) add(rate func(time.Duration) float64, wanted float64) *method {
	m := &method{rate: rate, wanted: wanted}
	m.Target = &w.target
	w.methods = append(w.methods, m)
	return m
}

func (w *world) age() time.Duration { return w.now.Sub(start) }

func (w *world) traffic(m *method) guard.Traffic {
	return guard.Traffic{Method: m.calls, Target: w.calls}
}

// pass advances the time and returns the share of due hedges that were sent, 1 if none was due.
func (w *world) pass(d time.Duration) float64 {
	w.due, w.sent, w.failed, w.made = 0, 0, 0, 0
	for end := w.now.Add(d); w.now.Before(end); {
		most := 0.0
		for _, m := range w.methods {
			most += m.rate(w.age())
		}
		if most == 0 {
			w.now = w.now.Add(second)
			continue
		}
		w.now = w.now.Add(time.Duration(w.arrival.ExpFloat64() / most * float64(second)))
		at := w.arrival.Float64() * most
		for _, m := range w.methods {
			if at -= m.rate(w.age()); at < 0 {
				w.call(m)
				break
			}
		}
	}
	if w.due == 0 {
		return 1
	}
	return float64(w.sent) / float64(w.due)
}

func (w *world) state(method int) stats.Guard {
	m := w.methods[method]
	return m.State(w.now, w.traffic(m))
}

// call makes one call. A primary that is refused ends at once. One call in ten is slow, and has a
// hedge.
func (w *world) call(m *method) {
	w.calls++
	w.made++
	m.calls++
	large := w.random.Float64() < w.large
	primary := !large && w.refuses != nil && w.refuses(w, m, 0)
	hedged := w.random.Float64() < m.wanted && !primary && w.hedge(m)
	hedge := hedged && !large && w.refuses != nil && w.refuses(w, m, 1)
	if large || primary || hedge {
		m.Exhausted(w.now, w.traffic(m), !large && !primary)
	}
	if large || primary {
		w.failed++
	}
}

// hedge sends a hedge if the guard lets it pass.
func (w *world) hedge(m *method) bool {
	w.due++
	if !m.Admit(w.now, w.traffic(m), new(guard.Ticket)) {
		return false
	}
	w.sent++
	m.Sent(w.now)
	return true
}
