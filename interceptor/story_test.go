package interceptor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// story is a few calls in a row to one target, as the model tests draw them: the service config or
// the options, and the steps of each attempt.
type story struct {
	seed     uint64
	unpaid   bool // the budget pays for nothing
	judged   bool // some answers are rejected
	policy   bool // the method has a hedgingPolicy; otherwise it is hedged adaptively
	reads    bool // it only reads
	attempts int
	delay    time.Duration
	nonFatal []codes.Code
	throttle bool
	most     int // tokens
	ratio    int // thousandths
	calls    []schedule
}

// schedule is one call: the step of each attempt, and the caller's actions.
type schedule struct {
	steps    []step
	deadline time.Duration // 0: none
	cancel   time.Duration // 0: never
	late     time.Duration // when the caller of a stream comes for its answer
	off      bool          // it is not to be hedged
}

func (c schedule) options() []grpc.CallOption {
	if c.off {
		return []grpc.CallOption{hedge.Off()}
	}
	return nil
}

func (s story) scheduler(t *testing.T) *hedge.Scheduler {
	config := map[string]any{}
	var opts []hedge.Option
	if s.policy {
		config["methodConfig"] = []any{map[string]any{
			"name": []any{map[string]any{"service": "test.Service", "method": "Method"}},
			"hedgingPolicy": map[string]any{
				"maxAttempts": s.attempts, "hedgingDelay": fmt.Sprintf("%.9fs", s.delay.Seconds()),
				"nonFatalStatusCodes": s.nonFatal,
			},
		}}
		opts = append(opts, hedge.WithBudgetPercent(400))
	} else {
		opts = append(opts, hedge.WithMaxHedges(s.attempts-1))
	}
	if s.unpaid {
		opts = append(opts, hedge.WithBudgetPercent(0))
	}
	if s.judged {
		var rejected []int64
		for n, st := range s.calls[0].steps {
			if st.rejected {
				rejected = append(rejected, int64(n))
			}
		}
		opts = append(opts, goodBut(rejected...))
	}
	if s.reads {
		opts = append(opts, hedge.WithReadOnlyMethods("/*/*"))
	}
	if s.throttle {
		config["retryThrottling"] = map[string]any{"maxTokens": s.most, "tokenRatio": float64(s.ratio) / 1000}
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	opts = append(opts, hedge.WithServiceConfig(string(text)), hedge.WithGuard(false)) // what fails here means nothing
	return hedgetest.Fixed(t, s.delay, opts...)
}

// ending is what gRPC's definition, or the rules, say must come of one call of a story.
type ending struct {
	line     time.Duration // when it was decided
	at       time.Duration // when its caller had the end
	winner   int
	code     codes.Code
	panics   any
	sent     []time.Duration
	tokens   int   // thousandths, afterwards
	rejected int64 // answers

	throttled, pushedBack int64
}

// expect is race, and the course of a stream after headers have decided it.
func (s story) expect(d door, c schedule, tokens int) ending {
	e := s.race(d, c, tokens)
	if e.line = e.at; e.code != codes.OK || !c.steps[e.winner].early {
		return e
	}
	e.at = e.sent[e.winner] + c.steps[e.winner].after
	if c.deadline > 0 && c.deadline < e.at {
		e.at, e.code = c.deadline, codes.DeadlineExceeded
	}
	if c.cancel > 0 && c.cancel < e.at {
		e.at, e.code = c.cancel, codes.Canceled
	}
	return e
}

// race plays one call that starts with the given tokens, event by event, without a goroutine or a
// clock.
func (s story) race(d door, c schedule, tokens int) ending {
	e := ending{sent: times(0), tokens: tokens}
	const none = time.Duration(1 << 62)
	over := map[int]bool{} // attempts that have failed
	next, floor, forbidden, last := s.delay, time.Duration(0), s.unpaid || c.off, 0
	late := time.Duration(0)
	if d != unary {
		if late = c.late; late > 0 && late >= s.delay {
			next = late + ms // the answer of the primary may be there
		}
	}
	calledFor := false              // a rejected answer called for the next hedge
	reply, rejectedStatus := -1, -1 // the first rejected ones
	atHand := func() bool {
		switch {
		case reply >= 0:
			e.winner = reply
		case rejectedStatus >= 0:
			e.winner = rejectedStatus
		default:
			return false
		}
		e.code = c.steps[e.winner].code
		return true
	}
	gone, goneCode := none, codes.OK
	if c.deadline > 0 {
		gone, goneCode = c.deadline, codes.DeadlineExceeded
	}
	if c.cancel > 0 && c.cancel < gone {
		gone, goneCode = c.cancel, codes.Canceled
	}
	for {
		first, at := -1, none // the attempt that ends next
		for n, began := range e.sent {
			end := began + c.steps[n].after
			if c.steps[n].early && (d == headersFirst || d == streaming && s.policy && !c.off) { // its headers decide
				end = began
			}
			if end = max(end, late); !over[n] && end < at {
				first, at = n, end
			}
		}
		switch {
		case gone < min(at, next): // rule 4
			e.at = gone
			switch {
			case atHand():
			case !over[0]:
				e.code = goneCode
			case s.policy:
				e.winner, e.code = last, c.steps[last].code
			default:
				e.code = c.steps[0].code
			}
			return e

		case next < at || next == at && first < 0:
			switch {
			case len(e.sent) == s.attempts || forbidden:
				next = none
			case next < floor:
				next = floor
			case s.throttle && 2*e.tokens <= 1000*s.most:
				e.throttled++
				forbidden = true
				e.at = next
				next = none
			default:
				e.sent, calledFor = append(e.sent, next), false
				next += s.delay
			}

		default:
			st := c.steps[first]
			e.at = at
			final := !slices.Contains(s.nonFatal, st.code)
			ends := st.code == codes.OK || final && (first == 0 || s.policy || s.reads) // rule 2
			if st.panics != nil {                                                       // rule 9
				e.winner, e.panics = first, st.panics
				return e
			}
			if ends && st.rejected {
				e.rejected++
				if over[first] = true; st.code == codes.OK && reply < 0 {
					reply = first
				} else if st.code != codes.OK && rejectedStatus < 0 {
					rejectedStatus = first
				}
				if len(e.sent) < s.attempts {
					next, calledFor = at, true
				}
				break
			}
			if st.code == codes.OK {
				e.winner = first
				// a caller that gives up after headers says nothing
				if answered := e.sent[first] + st.after; s.throttle && gone > answered {
					e.tokens = min(e.tokens+s.ratio, 1000*s.most)
				}
				return e
			}
			wait, said := 0, len(st.pushback) > 0
			if said {
				n, err := strconv.ParseInt(st.pushback[0], 10, 32)
				if wait = int(n); err != nil || len(st.pushback) > 1 {
					wait = -1
				}
			}
			// a primary's trailer is not looked at
			if first == 0 && !s.policy && !s.throttle && (d == unary || len(e.sent) == 1) {
				wait, said = 0, false
			}
			if said {
				e.pushedBack++
				forbidden = forbidden || wait < 0
				floor = max(floor, at+time.Duration(wait)*ms)
			}
			if s.throttle && (!final || wait < 0) {
				e.tokens = max(0, e.tokens-1000)
			}
			over[first], last = true, first
			if ends && reply < 0 {
				e.winner, e.code = first, st.code
				return e
			}
			if s.policy && !forbidden && len(e.sent) < s.attempts {
				next = max(at, floor)
			}
		}

		// No attempt is in flight, or to come.
		idle := len(over) == len(e.sent)
		waits := calledFor || s.policy && !forbidden && len(e.sent) < s.attempts
		if idle && over[0] && !waits {
			if atHand() {
				return e
			}
			if s.policy {
				e.winner = last
			}
			e.code = c.steps[e.winner].code
			return e
		}
	}
}

// played is how a call is made: the call, which returns the attempt that its reply is from, and
// afterwards what became of the attempts.
type played struct {
	call func(context.Context, ...grpc.CallOption) (int, error)
	sent func() []stubAttempt
}

// played is a call of the stub by a door.
func (s *stub) played(d door, scheduler *hedge.Scheduler, more ...grpc.CallOption) played {
	return played{func(ctx context.Context, opts ...grpc.CallOption) (int, error) {
		reply := wrapperspb.Int64(-1)
		err := s.callBy(d, ctx, scheduler, reply, append(opts, more...)...)
		return int(reply.Value), err
	}, s.sent}
}

// play makes a call and compares its end with want. The caller's reply is -1 before.
func (c schedule) play(t *testing.T, p played, want ending) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if c.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
		defer cancel()
	}
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, cancel).Stop()
	}
	var got observed
	var attempt, finished int
	var err error
	var panicked any
	began := time.Now()
	func() {
		defer func() { panicked = recover() }()
		attempt, err = p.call(ctx, grpc.Header(&got.header), grpc.Trailer(&got.trailer), grpc.OnFinish(func(e error) {
			finished++
			if want.panics == nil && status.Code(e) != want.code {
				t.Errorf("OnFinish(%v), want %v", e, want.code)
			}
		}))
	}()
	at := time.Since(began)
	if p, ok := panicked.(*hedge.Panic); ok && want.winner > 0 {
		if panicked = p.Value; !strings.Contains(string(p.Stack), "interceptor_test.") ||
			strings.Contains(string(p.Stack), ").callBy(") || !strings.Contains(p.Error(), string(p.Stack)) {
			t.Errorf("the hedge's stack is lost: %s", p.Stack)
		}
		if cause, ok := p.Value.(error); ok && (!errors.Is(p, cause) || !strings.Contains(p.Error(), cause.Error())) {
			t.Errorf("the hedge's error is lost: %v", p)
		}
	}
	synctest.Wait() // the losers have unwound, without time going on
	if at != want.at || panicked != want.panics || panicked == nil && (status.Code(err) != want.code || finished != 1) {
		t.Errorf("ended after %v with %v, panic %v, OnFinish ran %d times; want %+v", at, err, panicked, finished, want)
	}
	number := strconv.Itoa(want.winner)
	cut := want.sent[want.winner]+c.steps[want.winner].after > want.at
	if panicked == nil { // all that the caller got comes from the attempt that won: rules 1 and 6
		if err == nil && attempt != want.winner || err != nil && attempt != -1 {
			t.Errorf("reply of attempt %d, want %+v", attempt, want)
		}
		if text := status.Convert(err).Message(); err != nil && !cut &&
			text != cmp.Or(c.steps[want.winner].text, "attempt "+number) {
			t.Errorf("the error is %q, want %+v", text, want)
		}
		// An attempt that was cut short says nothing, unless its server ended it by the same
		// deadline.
		for name, md := range map[string]metadata.MD{"header": got.header, "trailer": got.trailer} {
			if says := first(md); says != number && (says != "" || !cut) {
				t.Errorf("%s %v; want %+v", name, md, want)
			}
		}
	}
	var sent []time.Duration
	for n, a := range p.sent() {
		sent = append(sent, a.began.Sub(began))
		// rules 7 and 8
		if end := a.ended.Sub(began); a.number != n || a.ended.IsZero() || end > want.at ||
			n != want.winner && end > want.line {
			t.Errorf("attempt %d, which says %d, ended after %v", n, a.number, end)
		}
	}
	if !slices.Equal(sent, want.sent) { // rule 11
		t.Errorf("sent after %v, want %+v", sent, want)
	}
}

// checkStats compares the counts of a call with the counts before.
func (s story) checkStats(t *testing.T, scheduler *hedge.Scheduler, c schedule, want ending, before stats.Counts) {
	t.Helper()
	row := scheduler.Methods()[0]
	if s.throttle && (row.ThrottleTokens != float64(want.tokens)/1000 || row.ThrottleMax != float64(s.most)) {
		t.Errorf("%v of %v tokens left, want %+v", row.ThrottleTokens, row.ThrottleMax, want)
	}
	expected := before
	expected.Calls++
	expected.Throttled += want.throttled
	expected.PushedBack += want.pushedBack
	expected.Rejected += want.rejected
	want.countRace(&expected)
	after := want.at - want.line // of the headers
	if after >= ms && 8*after >= want.at {
		expected.EarlyHeaders++
	}
	switch {
	case c.off:
		expected.Off++
	case !s.policy:
		expected.Warmup++
	}
	if row.Counts != expected {
		t.Errorf("%+v,\nwant %+v of %+v", row.Counts, expected, want)
	}
}
