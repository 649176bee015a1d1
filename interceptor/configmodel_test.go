package interceptor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/model"
	"github.com/grpchedge/hedge/stats"
)

// story is a few calls in a row, to one target, as TestConfigModel draws them: what a service config or the options
// say, and what each attempt would do.
type story struct {
	seed     uint64
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

func drawStory(seed uint64) story {
	r := model.New(seed, 1)
	s := story{seed: seed, policy: r.IntN(3) > 0, attempts: 2 + r.IntN(4), delay: ms + r.Within(20*ms)}
	if s.policy && r.IntN(4) == 0 {
		s.delay = 0
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if s.policy && r.IntN(2) == 0 || !s.policy && !isAnswer(code) {
			s.nonFatal = append(s.nonFatal, code)
		}
	}
	s.throttle, s.most, s.ratio = r.IntN(3) > 0, 1+r.IntN(8), 1+r.IntN(1500)
	for range 1 + r.IntN(4) {
		c := schedule{}
		for range s.attempts {
			st := step{after: r.Within(100 * ms), code: modelCodes[r.IntN(len(modelCodes))]}
			if len(s.nonFatal) > 0 && r.IntN(2) == 0 {
				st.code = s.nonFatal[r.IntN(len(s.nonFatal))]
			}
			switch r.IntN(8) {
			case 0, 1:
				st.pushback = []string{strconv.Itoa(r.IntN(60))}
			case 2:
				st.pushback = []string{[]string{"-1", "", "soon", "9999999999", "1.5"}[r.IntN(5)]}
			case 3:
				st.pushback = []string{"1", "2"}[:1+r.IntN(2)]
			}
			st.early = s.delay > 0 && st.code == codes.OK && r.IntN(4) == 0
			c.steps = append(c.steps, st)
		}
		if r.IntN(4) == 0 {
			c.deadline = r.Within(150 * ms)
		}
		if r.IntN(5) == 0 {
			c.cancel = r.Within(150 * ms)
		}
		s.calls = append(s.calls, c)
	}
	s.reads = r.IntN(2) == 0
	return s
}

func (s story) scheduler(t *testing.T) *hedge.Scheduler {
	config := map[string]any{}
	var opts []hedge.Option
	if s.policy {
		config["methodConfig"] = []any{map[string]any{
			"name": []any{map[string]any{"service": "test.Service", "method": "Method"}},
			"hedgingPolicy": map[string]any{
				"maxAttempts": s.attempts, "hedgingDelay": fmt.Sprintf("%.9fs", s.delay.Seconds()), "nonFatalStatusCodes": s.nonFatal,
			},
		}}
		opts = append(opts, hedge.WithBudgetPercent(400))
	} else {
		opts = append(opts, hedge.WithMaxHedges(s.attempts-1))
	}
	if s.reads {
		opts = append(opts, hedge.WithReadOnlyMethods("/test.Service/Method"))
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
	line   time.Duration // when it was decided
	at     time.Duration // when its caller had the end
	winner int
	code   codes.Code
	sent   []time.Duration
	tokens int // thousandths, afterwards

	throttled, pushedBack int64
}

// expect is race, and what comes after headers that have decided it.
func (s story) expect(d door, c schedule, tokens int) ending {
	e := s.race(d, c, tokens)
	if e.line = e.at; e.code != codes.OK {
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

// race plays one call that starts with so many tokens, event by event, without a goroutine or a clock.
func (s story) race(d door, c schedule, tokens int) ending {
	e := ending{sent: []time.Duration{0}, tokens: tokens}
	const none = time.Duration(1 << 62)
	over := map[int]bool{} // attempts that have failed
	next, floor, forbidden, last := s.delay, time.Duration(0), false, 0
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
			if c.steps[n].early && (d == headersFirst || d == streaming && s.policy) { // its headers decide
				end = began
			}
			if !over[n] && end < at {
				first, at = n, end
			}
		}
		switch {
		case gone < min(at, next): // rule 4
			e.at = gone
			switch {
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
				e.sent = append(e.sent, next)
				next += s.delay
			}

		default:
			st := c.steps[first]
			e.at = at
			if st.code == codes.OK {
				e.winner = first
				if answered := e.sent[first] + st.after; s.throttle && gone > answered { // a caller that gives up after headers says nothing
					e.tokens = min(e.tokens+s.ratio, 1000*s.most)
				}
				return e
			}
			final := !slices.Contains(s.nonFatal, st.code)
			wait, said := 0, len(st.pushback) > 0
			if said {
				n, err := strconv.ParseInt(st.pushback[0], 10, 32)
				if wait = int(n); err != nil || len(st.pushback) > 1 {
					wait = -1
				}
			}
			if first == 0 && !s.policy && !s.throttle && (d == unary || len(e.sent) == 1) { // a primary's trailer is not looked at
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
			if final && (first == 0 || s.policy || s.reads) { // rule 2
				e.winner, e.code = first, st.code
				return e
			}
			if s.policy && !forbidden && len(e.sent) < s.attempts {
				next = max(at, floor)
			}
		}

		// Nothing is in flight, and nothing will be.
		idle := len(over) == len(e.sent)
		waits := s.policy && !forbidden && len(e.sent) < s.attempts
		if idle && over[0] && !waits {
			if s.policy {
				e.winner = last
			}
			e.code = c.steps[e.winner].code
			return e
		}
	}
}

// TestConfigModel draws stories of service configs, throttles and pushbacks, plays each in virtual
// time, and checks it against a model that has neither goroutines nor locks.
func TestConfigModel(t *testing.T) {
	model.Each(t, model.Counts{Short: 500, Long: 5_000}, 1, func(*testing.T) func(*testing.T, uint64) {
		return func(t *testing.T, seed uint64) {
			s := drawStory(seed)
			for _, d := range doors {
				scheduler := s.scheduler(t)
				tokens := 1000 * s.most
				for n, c := range s.calls {
					s.earn(t, scheduler)
					before := scheduler.Stats()
					want := s.expect(d, c, tokens)
					s.play(t, d, scheduler, n, want)
					s.checkStats(t, d, scheduler, n, want, before)
					tokens = want.tokens
					if t.Failed() {
						t.Fatalf("by %s: story %+v", d, s)
					}
				}
			}
		}
	})
}

// earn lets the budget pay for the next call, by calls that the throttle does not count.
func (s story) earn(t *testing.T, scheduler *hedge.Scheduler) {
	for range 30 {
		if s.policy {
			return // it costs nothing
		}
		st := &stub{steps: []step{{code: codes.NotFound}}}
		if err := st.call(t.Context(), scheduler, wrapperspb.Int64(0)); status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
	}
}

func (s story) play(t *testing.T, d door, scheduler *hedge.Scheduler, call int, want ending) {
	c := s.calls[call]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if c.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
		defer cancel()
	}
	if c.cancel > 0 {
		defer time.AfterFunc(c.cancel, cancel).Stop()
	}
	st := &stub{steps: c.steps}
	var got observed
	finished := 0
	reply := wrapperspb.Int64(0)
	began := time.Now()
	err := st.callBy(d, ctx, scheduler, reply, grpc.Header(&got.header), grpc.Trailer(&got.trailer), grpc.OnFinish(func(e error) {
		finished++
		if status.Code(e) != want.code {
			t.Errorf("call %d: OnFinish(%v), want %v", call, e, want.code)
		}
	}))
	at := time.Since(began)
	synctest.Wait() // the losers have unwound, without time going on
	if at != want.at || status.Code(err) != want.code || finished != 1 {
		t.Errorf("call %d ended after %v with %v, OnFinish ran %d times; want %+v", call, at, err, finished, want)
	}
	if err == nil && reply.Value != int64(want.winner) {
		t.Errorf("call %d: reply of attempt %d, want %+v", call, reply.Value, want)
	}
	number := strconv.Itoa(want.winner)
	cut := want.sent[want.winner]+c.steps[want.winner].after > want.at
	if !cut && (first(got.header) != number || first(got.trailer) != number) || cut && first(got.header)+first(got.trailer) != "" {
		t.Errorf("call %d: header %v, trailer %v; want %+v", call, got.header, got.trailer, want)
	}
	var sent []time.Duration
	for _, a := range st.sent() {
		sent = append(sent, a.began.Sub(began))
		if end := a.ended.Sub(began); end > want.at || a.number != want.winner && end > want.line {
			t.Errorf("call %d: attempt %d ended after %v", call, a.number, a.ended.Sub(began))
		}
	}
	if !slices.Equal(sent, want.sent) {
		t.Errorf("call %d: sent after %v, want %+v", call, sent, want)
	}
}

func (s story) checkStats(t *testing.T, d door, scheduler *hedge.Scheduler, call int, want ending, before stats.Counts) {
	row := scheduler.Targets()[0]
	if s.throttle && (row.ThrottleTokens != float64(want.tokens)/1000 || row.ThrottleMax != float64(s.most)) {
		t.Errorf("call %d: %v of %v tokens left, want %+v", call, row.ThrottleTokens, row.ThrottleMax, want)
	}
	expected := before
	expected.Calls++
	expected.Hedges += int64(len(want.sent) - 1)
	expected.Throttled += want.throttled
	expected.PushedBack += want.pushedBack
	after := want.at - want.line // of the headers
	if after >= ms && 8*after >= want.at {
		expected.EarlyHeaders++
	}
	if !s.policy {
		expected.Warmup++
	}
	if len(want.sent) > 1 {
		expected.Hedged++
		switch {
		case after == 0 && !isAnswer(want.code) && want.code != codes.OK:
		case want.winner > 0:
			expected.HedgeWins++
		default:
			expected.PrimaryWins++
		}
	}
	if row.Counts != expected {
		t.Errorf("call %d: %+v,\nwant %+v of %+v", call, row.Counts, expected, want)
	}
}
