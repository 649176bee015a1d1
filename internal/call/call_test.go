package call_test

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/trigger"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// begin begins a call of target and method under ctx.
func begin(ctx context.Context, s *hedge.Scheduler, target, method string, opts ...grpc.CallOption) *call.Call {
	c := call.Begin((*registry.Registry)(s), ctx, target, method, nil, opts...)
	return &c
}

// TestRule13_HedgesThatFailTeachNothing has a hedge end in each way. Every error is final, so that
// a hedge that fails wins.
func TestRule13_HedgesThatFailTeachNothing(t *testing.T) {
	for _, tc := range []struct {
		name           string
		primary, hedge time.Duration
		err            error // of the hedge
		want           int64 // hedges known
	}{
		{name: "a failure", primary: time.Hour, hedge: ms, err: status.Error(codes.Unavailable, "dead")},
		{name: "a success", primary: time.Hour, hedge: ms, want: 1},
		{name: "an answer", primary: time.Hour, hedge: ms, err: status.Error(codes.NotFound, "an answer"), want: 1},
		{name: "cut short", primary: 20 * ms, hedge: time.Hour, want: 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithNonFatalCodes(), hedge.WithReadOnlyMethods(method), hedge.WithMaxHedges(1))
			_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
				if simulation.AttemptOf(ctx) == 0 {
					return hedgetest.Taking(tc.primary)(ctx)
				}
				n, err := hedgetest.Taking(tc.hedge)(ctx)
				return n, cmp.Or(err, tc.err)
			})
			got := begin(t.Context(), s, target, method).Learner().Hedges(time.Now()).Total()
			if err != tc.err || got != tc.want {
				t.Errorf("the call ends with %v, and %d hedges are known; want %v and %d", err, got, tc.err, tc.want)
			}
		})
	}
}

func TestThrottle_CountsConcurrently(t *testing.T) {
	for _, tc := range []struct {
		name                string
		failures, successes int // each of eight goroutines has
		want                float64
	}{
		{name: "failures", failures: 50, want: 600},
		{name: "more failures than tokens", failures: 200},
		{name: "successes above the most", successes: 100, want: 1000},
		{name: "successes that make up for failures", failures: 10, successes: 80, want: 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := hedgetest.All(t, hedgetest.Throttle(1000, 0.125))
			each := func(n int, do func(*call.Call)) {
				var group sync.WaitGroup
				for range 8 {
					group.Go(func() {
						for range n {
							do(begin(t.Context(), s, target, method, hedge.Off()))
						}
					})
				}
				group.Wait()
			}
			each(tc.failures, func(c *call.Call) { c.End(call.Completion{Err: status.Error(codes.Unavailable, "")}) })
			each(tc.successes, func(c *call.Call) { c.End(call.Completion{}) })
			if got := s.Methods()[0]; got.ThrottleTokens != tc.want || got.ThrottleMax != 1000 {
				t.Errorf("%v of %v tokens, want %v", got.ThrottleTokens, got.ThrottleMax, tc.want)
			}
		})
	}
}

func TestThrottle_IsPerTarget(t *testing.T) {
	s := hedgetest.All(t, hedgetest.Throttle(10, 1.0009)) // digits past the third decimal are dropped
	for _, c := range []struct{ target, method string }{{"a", "/x/A"}, {"a", "/x/B"}, {"b", "/x/A"}} {
		begin(t.Context(), s, c.target, c.method, hedge.Off()).End(call.Completion{Err: status.Error(codes.NotFound, ""),
			Trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1")})
	}
	begin(t.Context(), s, "a", "/x/A", hedge.Off()).End(call.Completion{})
	for i, want := range []float64{9, 9, 9} {
		if row := s.Methods()[i]; row.ThrottleTokens != want {
			t.Errorf("%s%s: %v tokens, want %v", row.Target, row.Method, row.ThrottleTokens, want)
		}
	}
}

// TestEnd_HedgedCallsWithoutAnAnswer ends hedged calls without an answer. A call that fails, or
// misses its deadline, shows that hedges do not pay: most are then late, or none is due. A call that
// its caller gave up shows nothing.
func TestEnd_HedgedCallsWithoutAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		code   codes.Code
		gone   bool
		gaveUp bool
	}{
		"failed":          {codes.Unavailable, false, false},
		"missed deadline": {codes.DeadlineExceeded, true, false},
		"given up":        {codes.Canceled, true, true},
	} {
		end := func(c *call.Call, age time.Duration) {
			err := status.Error(tc.code, "")
			r := race.State{Hedges: 1, Err: err, DecidedAt: age, DeliveredAt: age}
			r.CallerGone, r.GaveUp, r.GoneAt = tc.gone, tc.gaveUp, age
			r.Attempts[0].EndedAt, r.Attempts[0].Event = age, race.Event{Kind: race.Ended, End: race.NonFatal, Err: err}
			r.Attempts[1] = r.Attempts[0]
			r.Attempts[1].SentAt = c.Delay
			c.Ended(&r)
		}
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.All(t)
			learn := func() {
				for n := range 2000 {
					latency := 10 * ms
					if n%20 == 0 {
						latency = 500 * ms
					}
					begin(t.Context(), s, target, method).Learner().PrimaryEnded(time.Now(), latency, true)
					time.Sleep(ms)
				}
			}
			learn()
			l := begin(t.Context(), s, target, method).Learner()
			for range 30 {
				end(begin(t.Context(), s, target, method), 500*ms)
				l.UndrawnCall(time.Now(), l.Estimate(), 20*ms, trigger.Never, 500*ms, true)
				time.Sleep(time.Second)
			}
			learn()
			sent := 0
			for range 1000 {
				if e := l.Estimate(); e.Delay < 400*ms && l.Draw(e, e.Delay) == 0 {
					sent++
				}
			}
			if sent > 500 != tc.gaveUp {
				t.Errorf("%d of 1000 due hedges are sent", sent)
			}
		})
	}
}

// TestThrottle_CountsAFailureOnce has the throttle count a failure when the next hedge is due, and once.
func TestThrottle_CountsAFailureOnce(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	for name, tc := range map[string]struct {
		state  race.State
		want   float64
		pushed int64
	}{
		"a failure":                        {race.State{}, 9, 1},
		"one that came as the caller left": {race.State{CallerGone: true, GaveUp: true, GoneAt: ms}, 10, 0},
		"one before the caller left":       {race.State{CallerGone: true, GaveUp: true, GoneAt: 2 * ms}, 9, 1},
	} {
		s := hedgetest.All(t, hedgetest.Throttle(10, 0.1))
		c := begin(t.Context(), s, target, method, hedge.After(0))
		primary := &tc.state.Attempts[0]
		tc.state.Err, primary.EndedAt = unavailable, ms
		primary.Event = race.Event{Kind: race.Ended, End: race.NonFatal, Err: unavailable, Pushback: race.PushbackAfter}
		c.Admit(1, 1, &tc.state)
		due := s.Methods()[0].ThrottleTokens
		c.Ended(&tc.state)
		if got := s.Methods()[0]; due != tc.want || got.ThrottleTokens != tc.want || got.PushedBack != tc.pushed {
			t.Errorf("%s: %v tokens when a hedge is due, and %v at the end; %d pushed back; want %v, %d", name, due,
				got.ThrottleTokens, got.PushedBack, tc.want, tc.pushed)
		}
	}
}

// TestAdmit_RefundsWhatALaterLimitRefuses: a hedge that the target's budget does not pay takes nothing
// from the budget of its method, and no reset.
func TestAdmit_RefundsWhatALaterLimitRefuses(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(0)), hedge.WithMaxHedges(1),
		hedge.WithHedgeLimit(4, time.Hour), // two hedges
		hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(1)))
	admits := func(method string) bool {
		send, _ := hedgetest.Admit(begin(t.Context(), s, target, method), 1)
		return send
	}
	if !admits("/s/Other") || admits("/s/Own") {
		t.Fatal("the target begins with one token")
	}
	for range 20 { // which earn two
		begin(t.Context(), s, target, "/s/Other")
	}
	if !admits("/s/Own") {
		t.Error("the method has no token left, or the target no reset")
	}
}

// TestAdmit_WaitsForTheReserve has calls use up the tokens beyond the reserve. The hedge of the
// next call then waits: for an eighth of its age, or until just before its deadline is too near.
func TestAdmit_WaitsForTheReserve(t *testing.T) {
	for _, tc := range []struct{ deadline, wait time.Duration }{{0, 6 * ms}, {111 * ms, 3 * ms}} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t)
			ctx := t.Context()
			for range 60 {
				begin(ctx, s, target, method).Learner().PrimaryEnded(time.Now(), 50*ms, true)
			}
			var before []*call.Call
			for range 10 {
				before = append(before, begin(ctx, s, target, method))
			}
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			c := begin(ctx, s, target, method)
			time.Sleep(c.Plan().Due)
			for _, b := range before {
				hedgetest.Admit(b, 1)
			}
			send, wait := hedgetest.Admit(c, 1)
			if send || (wait-tc.wait).Abs() > ms {
				t.Errorf("deadline %v: sent: %v, due again after %v, want %v", tc.deadline, send, wait, tc.wait)
			}
			time.Sleep(wait)
			if send, wait := hedgetest.Admit(c, 1); send != (tc.deadline > 0) {
				t.Errorf("deadline %v: sent: %v after the wait, due again after %v", tc.deadline, send, wait)
			}
		})
	}
}

// TestAdmit_UsesTheNewestDelay: a due first hedge waits while the newest estimate has a longer delay
// than its call.
func TestAdmit_UsesTheNewestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		record := func(n int, d time.Duration) {
			for range n {
				begin(t.Context(), s, target, method).Learner().PrimaryEnded(time.Now(), d, true)
				synctest.Wait() // for the estimate
			}
		}
		record(25, 2*ms)
		c := begin(t.Context(), s, target, method)
		if c.Plan().Due > 3*ms {
			t.Fatalf("the first hedge is due after %v, want 2 ms", c.Plan().Due)
		}
		record(60, 50*ms)
		time.Sleep(c.Plan().Due)
		send, wait := hedgetest.Admit(c, 1)
		if send || wait < 40*ms || wait > 50*ms {
			t.Fatalf("sent: %v, due again after %v, want after 48 ms", send, wait)
		}
		time.Sleep(wait)
		if send, wait := hedgetest.Admit(c, 1); !send {
			t.Errorf("not sent after the newest delay, due again after %v", wait)
		}
	})
}

// TestPayment_OfARetriedHedge has savings pay for a hedge that is dropped, and tokens for its retry. The
// refund of the retry is a token again.
func TestPayment_OfARetriedHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(0)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100))
		spender, c := begin(t.Context(), s, target, method), begin(t.Context(), s, target, method)
		for range 20 {
			begin(t.Context(), s, target, method)
		}
		time.Sleep(10 * time.Second) // the burst is one token then, and the rest is saved
		admit := func(c *call.Call, tokens, saved float64) {
			t.Helper()
			e := c.Admit(1, 1, &race.State{})
			if b := s.Methods()[0].Budget; e.Kind != race.Admitted || b.Tokens != tokens || b.Saved != saved {
				t.Errorf("%+v with %v tokens and %v saved, want a hedge, %v and %v", e, b.Tokens, b.Saved, tokens, saved)
			}
		}
		admit(spender, 0, 4)
		for range 2 { // savings pay once hedges have won
			spender.Ended(&race.State{Hedges: 1, Winner: 1})
		}
		admit(c, 0, 3)
		begin(t.Context(), s, target, method) // earns a token
		admit(c, 0, 4)
		c.Ended(&race.State{})
		if b := s.Methods()[0].Budget; b.Tokens != 1 || b.Saved != 4 {
			t.Errorf("%v tokens and %v saved, want 1 and 4", b.Tokens, b.Saved)
		}
	})
}

// life is one race of a call with two hedges, driven event by event. next chooses what happens: it returns
// a number below n.
type life struct {
	*call.Call
	state   race.State
	now     time.Duration
	flying  []uint8 // attempts in flight
	used    int     // hedges that were sent and are not turned away
	away    int     // hedges that were turned away
	failed  [3]bool // attempts whose failure counts
	exhaust [3]bool // attempts with a RESOURCE_EXHAUSTED that counts
	gone    bool
	over    bool
	next    func(n int) int
}

func (l *life) step(e race.Event) race.Actions {
	l.now += ms
	decided := l.state.DecidedAt > 0
	if !decided && !l.gone && e.TurnedAway() {
		l.used, l.away = l.used-1, l.away+1
	}
	l.gone = l.gone || e.Kind == race.CallerGone
	if e.Kind == race.Ended && e.End == race.NonFatal {
		e.Err = status.Error(codes.Unavailable, "")
		l.failed[e.Attempt], l.exhaust[e.Attempt] = !decided && !l.gone, !decided && e.Exhausted
	}
	a := l.state.Step(e, l.now)
	if a.Start > 0 {
		l.used++
		l.flying = append(l.flying, a.Start)
		l.Sent(int(a.Start), a.Cause)
	}
	l.over = l.over || a.Deliver
	return a
}

// ends ends an attempt in flight.
func (l *life) ends() {
	i := l.next(len(l.flying))
	n := l.flying[i]
	l.flying = slices.Delete(l.flying, i, i+1)
	e := race.Event{Kind: race.Ended, Attempt: n}
	switch l.next(5) {
	case 1:
		e.End, e.Failover = race.NonFatal, true
	case 2:
		e.End, e.Pushback = race.NonFatal, race.PushbackAfter // of a hedge: turned away
	case 3:
		e.End = race.Panicked
	case 4:
		e.End, e.Exhausted = race.NonFatal, true
	}
	l.step(e)
}

// due has the next hedge considered. An admitted one is sent, cannot be made, panics, or is too late.
func (l *life) due() {
	a := l.step(race.Event{Kind: race.Due})
	if a.Ask == 0 {
		return
	}
	soFar := l.state
	soFar.Due = l.now
	e := l.Admit(int(a.Ask), int(a.Turn), &soFar)
	if e.Kind != race.Admitted {
		l.step(e)
		return
	}
	switch e.Paid = true; l.next(4) {
	case 1:
		e.Kind = race.NotReplayable
	case 2:
		e = race.Event{Kind: race.Ended, Attempt: a.Ask, End: race.Panicked, Paid: true}
	case 3:
		if len(l.flying) > 0 {
			l.ends()
		}
	}
	l.step(e)
}

// TestClaim_EveryOrder goes through every order of events of a call with two hedges, at its own target and
// elsewhere: its hedges are admitted, sent or not, turned away, fail, win or lose. At the end, each budget
// lacks the tokens, and each limit the resets, of the hedges that were sent, and nothing else. Each
// throttle has heard of each failure once, and each guard of one RESOURCE_EXHAUSTED.
func TestClaim_EveryOrder(t *testing.T) {
	for _, to := range []string{"", "dns:///elsewhere"} {
		var path, width []int // the choices, and the number of possibilities of each
		lives, sent, away := 0, 0, 0
		for more := true; more; lives++ {
			at := 0
			next := func(n int) int {
				if at == len(path) {
					path, width = append(path, 0), append(width, n)
				}
				at++
				return path[at-1]
			}
			synctest.Test(t, func(t *testing.T) {
				used, turned := claimed(t, to, next)
				sent, away = sent+used, away+turned
			})
			for at = len(path) - 1; at >= 0 && path[at] == width[at]-1; at-- {
			}
			if more = at >= 0; more {
				path, width = path[:at+1], width[:at+1]
				path[at]++
			}
		}
		if t.Logf("%d lives", lives); lives < 1000 || sent == 0 || away == 0 {
			t.Errorf("%d lives, %d hedges used their claims up, and %d were turned away", lives, sent, away)
		}
	}
}

// claimed runs one life, and checks the balance of the limits.
func claimed(t *testing.T, to string, next func(int) int) (used, away int) {
	s := hedgetest.All(t, hedge.WithMaxHedges(2), hedge.WithHedgeLimit(20, time.Hour),
		hedgetest.Throttle(10, 0.5), hedge.WithMethodOptions(method, hedge.WithBudgetPercent(100)))
	r := (*registry.Registry)(s)
	balance := func() (tokens [2]float64, resets [2]int) {
		for i, of := range []string{target, "dns:///elsewhere"} {
			limit := &r.Method(of, method, time.Now()).Target.Resets
			for limit.Admit(time.Now()) {
				resets[i]++
			}
			for range resets[i] {
				limit.Refund()
			}
		}
		for i, b := range r.Method(target, method, time.Now()).Settings().Budgets {
			tokens[i] = b.Balance(time.Now()).Tokens
		}
		return tokens, resets
	}
	for range 40 {
		begin(t.Context(), s, target, method)
	}
	l := &life{Call: begin(t.Context(), s, target, method, hedge.After(ms)), next: next, flying: []uint8{0}}
	if to != "" {
		l.GoElsewhere(func(int) (string, call.Conn) { return to, nil }, false)
	}
	tokens, resets := balance()
	l.state, _ = race.NewState(l.Plan())
	most := 6
	switch {
	case longtest.Race: // there is one goroutine
		most = 4
	case longtest.Long():
		most = 8
	}
	for events := 0; !l.over && events < most; events++ {
		switch kind := next(3); {
		case kind == 0 && len(l.flying) > 0:
			l.ends()
		case kind == 1:
			l.due()
		default:
			l.step(race.Event{Kind: race.CallerGone})
		}
	}
	l.next = func(int) int { return 0 }
	for !l.over { // the rest of the attempts answer
		if len(l.flying) == 0 {
			l.step(race.Event{Kind: race.CallerGone})
		} else {
			l.ends()
		}
	}
	l.Ended(&l.state)
	left, leftResets := balance()
	for i := range tokens {
		if lacks := tokens[i] - left[i]; math.Abs(lacks-float64(l.used)-float64(l.away)/10) > 1e-6 {
			t.Fatalf("bucket %d lacks %v tokens after %d hedges, and %d turned away: %+v", i, lacks, l.used, l.away, l.state)
		}
	}
	for i := range resets {
		want := l.used
		if i == 1 && to == "" {
			want = 0
		}
		if lacks := resets[i] - leftResets[i]; lacks != want {
			t.Fatalf("limit %d lacks %d resets after %d hedges, and %d turned away: %+v", i, lacks, l.used, l.away, l.state)
		}
	}
	l.checkHeard(t, r, to)
	return l.used, l.away
}

// checkHeard checks what the throttles and the guards of the two targets have heard.
func (l *life) checkHeard(t *testing.T, r *registry.Registry, to string) {
	now := time.Now()
	for i, of := range []string{target, "dns:///elsewhere"} {
		isHere := func(n int) bool { return (n > 0 && to != "") == (i == 1) }
		m := r.Method(of, method, now)
		tokens, heard := 10.0, guard.Guard{Target: new(guard.Shared)}
		for n := 1; n <= l.state.Hedges; n++ {
			if isHere(n) {
				heard.Sent(now)
			}
		}
		for told, n := false, 0; n < 3; n++ {
			if isHere(n) && l.failed[n] {
				tokens--
			}
			if isHere(n) && l.exhaust[n] && !told {
				told = true
				heard.Exhausted(now, m.Traffic(), n > 0)
			}
		}
		if isHere(l.state.Winner) && l.state.Err == nil && !l.state.Panicked {
			tokens = min(tokens+0.5, 10)
		}
		if got, _ := m.Settings().Throttle.Tokens(); got != tokens {
			t.Fatalf("throttle %d has %v tokens, want %v: %+v", i, got, tokens, l.state)
		}
		for _, g := range []*guard.Guard{&m.Guard, &heard} { // a failure of a hedge makes all failures so far count
			g.Sent(now)
			g.Exhausted(now, m.Traffic(), true)
		}
		at := now.Add(6 * time.Second) // the hedges have paused, and the share has begun to grow
		if got, want := m.Guard.State(at, m.Traffic()).Share, heard.State(at, m.Traffic()).Share; got != want {
			t.Fatalf("guard %d lets a share of %v pass, want %v: %+v", i, got, want, l.state)
		}
	}
}
