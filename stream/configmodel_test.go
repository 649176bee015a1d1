package stream_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/model"
	testpb "github.com/grpchedge/hedge/proto"
)

// story is a few streams in a row, to one target, as TestConfigModel draws them: what a service config or the
// options say, and what each attempt would do.
type story struct {
	policy   bool // the method has a hedgingPolicy; otherwise it is hedged adaptively
	reads    bool // it only reads
	attempts int
	delay    time.Duration
	nonFatal []codes.Code
	throttle bool
	most     int // tokens
	ratio    int // thousandths
	streams  []drawn
}

// drawn is one stream: its caller may ask for the headers first.
type drawn struct {
	header bool
	plans  []attemptPlan
}

type attemptPlan struct {
	plan
	early    bool // headers at once
	pushback string
}

func drawStory(seed uint64) story {
	r := model.New(seed, 1)
	s := story{policy: r.IntN(4) > 0, attempts: 2 + r.IntN(4), delay: ms + r.Within(20*ms)}
	if s.policy && r.IntN(4) == 0 {
		s.delay = 0
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if s.policy && r.IntN(2) == 0 || !s.policy && !isAnswer(code) {
			s.nonFatal = append(s.nonFatal, code)
		}
	}
	s.throttle, s.most, s.ratio = r.IntN(3) > 0, 1+r.IntN(8), 1+r.IntN(1500)
	some := []codes.Code{codes.NotFound, codes.PermissionDenied, codes.OutOfRange, codes.Unavailable, codes.Internal, codes.Unknown}
	for range 1 + r.IntN(4) {
		d := drawn{header: s.policy && r.IntN(3) == 0}
		for range s.attempts {
			p := attemptPlan{plan: plan{first: r.Within(80 * ms), messages: r.IntN(3), interval: r.Within(10 * ms)}}
			if r.IntN(2) == 0 {
				p.code, p.messages = some[r.IntN(len(some))], r.IntN(2)*r.IntN(2)
			}
			p.early = s.delay > 0 && p.messages > 0 && r.IntN(4) == 0
			switch r.IntN(6) {
			case 0, 1:
				p.pushback = strconv.Itoa(r.IntN(60))
			case 2:
				p.pushback = "-1"
			}
			d.plans = append(d.plans, p)
		}
		s.streams = append(s.streams, d)
	}
	s.reads = r.IntN(2) == 0
	return s
}

func (s story) scheduler(t *testing.T) *hedge.Scheduler {
	config := map[string]any{}
	var opts []hedge.Option
	if s.policy {
		config["methodConfig"] = []any{map[string]any{
			"name": []any{map[string]any{"service": "hedgetest.TestService"}},
			"hedgingPolicy": map[string]any{
				"maxAttempts": s.attempts, "hedgingDelay": fmt.Sprintf("%.9fs", s.delay.Seconds()), "nonFatalStatusCodes": s.nonFatal,
			},
		}}
		opts = append(opts, hedge.WithBudgetPercent(400))
	} else {
		opts = append(opts, hedge.WithMaxHedges(s.attempts-1))
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
	return hedgetest.Fixed(t, s.delay, append(opts, hedge.WithServiceConfig(string(text)), hedge.WithGuard(false))...) // what fails here means nothing
}

// ending is what gRPC's definition, or the rules, say must come of one stream of a story.
type ending struct {
	line     time.Duration // when it was decided
	winner   int
	messages int
	at       time.Duration
	code     codes.Code
	sent     []time.Duration
	tokens   int // thousandths, afterwards
}

// race plays the attempts of one stream that starts with so many tokens, without a goroutine or a clock.
func (s story) race(d drawn, tokens int) ending {
	e := ending{sent: []time.Duration{0}, tokens: tokens}
	const none = time.Duration(1 << 62)
	over := map[int]bool{} // attempts that have failed
	next, floor, forbidden := s.delay, time.Duration(0), false
	for {
		first, at := -1, none // the attempt that is decided next
		for n, began := range e.sent {
			end := began + d.plans[n].first
			if s.policy && d.plans[n].early { // headers commit
				end = began
			}
			if !over[n] && end < at {
				first, at = n, end
			}
		}
		if next < at {
			switch {
			case len(e.sent) == s.attempts || forbidden:
				next = none
			case next < floor:
				next = floor
			case s.throttle && 2*e.tokens <= 1000*s.most:
				forbidden, e.line = true, next
			default:
				e.sent = append(e.sent, next)
				next += s.delay
			}
		} else {
			p := d.plans[first]
			e.line, e.winner = at, first
			if p.messages > 0 || p.code == codes.OK {
				e.tokens = min(e.tokens+s.ratio, 1000*s.most)
				return e
			}
			final, wait := !slices.Contains(s.nonFatal, p.code), 0
			if p.pushback != "" {
				wait, _ = strconv.Atoi(p.pushback)
				forbidden = forbidden || wait < 0
				floor = max(floor, at+time.Duration(wait)*ms)
			}
			if !final || wait < 0 {
				e.tokens = max(0, e.tokens-1000)
			}
			if over[first] = true; final && (first == 0 || s.policy || s.reads) { // rule 2
				return e
			}
			if s.policy && !forbidden && len(e.sent) < s.attempts {
				next = max(at, floor)
			}
		}
		waits := s.policy && !forbidden && len(e.sent) < s.attempts
		if len(over) == len(e.sent) && over[0] && !waits {
			if !s.policy {
				e.winner = 0
			}
			return e
		}
	}
}

// expect is race, and what the winner does after it.
func (s story) expect(d drawn, tokens int) ending {
	e := s.race(d, tokens)
	w := d.plans[e.winner]
	e.messages, e.code, e.at = w.messages, w.code, e.sent[e.winner]+w.first
	if w.messages > 0 {
		e.at += time.Duration(w.messages-1) * w.interval
		if w.code != codes.OK { // the server waits an interval before it ends with an error
			e.at += w.interval
		}
	}
	e.at = max(e.at, e.line)
	return e
}

func (d drawn) script(a testserver.Attempt) testserver.Plan {
	p := d.plans[a.Number]
	plan := testserver.Plan{Delay: p.first, Interval: p.interval, Messages: p.messages, Empty: p.messages == 0, HeaderAtOnce: p.early,
		Code: p.code, After: p.messages, Trailer: metadata.Pairs("attempt", strconv.Itoa(a.Number))}
	if p.pushback != "" {
		plan.Trailer.Set("grpc-retry-pushback-ms", p.pushback)
	}
	return plan
}

// TestConfigModel draws stories of service configs, throttles and pushbacks, plays each over real
// gRPC in virtual time, and checks it against a model that has neither goroutines nor locks.
func TestConfigModel(t *testing.T) {
	const perBubble = 20
	model.Each(t, model.Counts{Short: 200, Long: 1_500}, perBubble, func(t *testing.T) func(*testing.T, uint64) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		return func(t *testing.T, seed uint64) {
			s := drawStory(seed)
			if s.play(t, cluster); t.Failed() {
				t.Fatalf("story %+v", s)
			}
		}
	})
}

func (s story) play(t *testing.T, cluster *testserver.Cluster) {
	scheduler := s.scheduler(t)
	client := dial(t, cluster, scheduler)
	tokens := 1000 * s.most
	for n, d := range s.streams {
		for range 30 { // so that the budget pays for the next
			call.Begin(registry.Of(scheduler), t.Context(), cluster.Target(), testpb.TestService_ServerStream_FullMethodName, nil, hedge.After(ms))
		}
		cluster.Reset()
		cluster.SetScript(d.script)
		want := s.expect(d, tokens)
		d.play(t, cluster, client, n, want)
		row := scheduler.Targets()[0]
		if s.throttle && row.ThrottleTokens != float64(want.tokens)/1000 {
			t.Errorf("stream %d: %v tokens left, want %+v", n, row.ThrottleTokens, want)
		}
		if tokens = want.tokens; t.Failed() {
			return
		}
	}
}

func (d drawn) play(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient, n int, want ending) {
	var trailer metadata.MD
	finished := 0
	began := time.Now()
	req := &testpb.Request{Id: uint64(n + 1), Messages: 1}
	st, err := client.ServerStream(t.Context(), req, grpc.Trailer(&trailer), grpc.OnFinish(func(error) { finished++ }))
	if err != nil {
		t.Fatal(err)
	}
	if d.header {
		if _, err := st.Header(); err != nil || time.Since(began) != want.line {
			t.Errorf("stream %d: Header: %v after %v, want %+v", n, err, time.Since(began), want)
		}
	}
	messages, attempt, err := receive(st, req)
	if at := time.Since(began); messages != want.messages || messages > 0 && attempt != want.winner || status.Code(err) != want.code || at != want.at {
		t.Errorf("stream %d: %d messages of attempt %d, %v after %v; want %+v", n, messages, attempt, err, at, want)
	}
	synctest.Wait() // the losers have unwound, without time going on
	if number := trailer.Get("attempt"); finished != 1 || !slices.Equal(number, []string{strconv.Itoa(want.winner)}) {
		t.Errorf("stream %d: OnFinish ran %d times, trailer of attempt %v; want %+v", n, finished, number, want)
	}
	var sent []time.Duration
	for _, r := range cluster.Records() {
		sent = append(sent, r.Arrival.Sub(began))
		if r.Ended.IsZero() || r.Number != want.winner && r.Ended.Sub(began) > want.line {
			t.Errorf("stream %d: attempt %d ended after %v, want %+v", n, r.Number, r.Ended.Sub(began), want)
		}
	}
	if !slices.Equal(sent, want.sent) {
		t.Errorf("stream %d: sent after %v, want %+v", n, sent, want)
	}
}
