package race_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

func unmarked(ctx context.Context) context.Context { return race.Unmarked(ctx, race.Of(ctx)) }

// TestUnnumbered makes a call in the handler of a hedge, and in another one.
func TestUnnumbered(t *testing.T) {
	background := context.Background()
	own := metadata.Pairs("tenant", "blue", "authorization", "Bearer 1")
	mark := metadata.Pairs(rpc.AttemptsHeader, "1", rpc.AttemptsHeader, "2", rpc.InFlightHeader, "1")
	serving := func(ctx context.Context, in ...metadata.MD) context.Context {
		return metadata.NewIncomingContext(ctx, metadata.Join(in...))
	}
	for name, tc := range map[string]struct {
		ctx  context.Context
		want metadata.MD // of a primary
		same bool
	}{
		"nothing":           {background, nil, true},
		"its own":           {metadata.NewOutgoingContext(background, own), own, true},
		"serving a primary": {metadata.NewOutgoingContext(serving(background, own), own), own, true},
		"serving a hedge":   {serving(background, mark), metadata.MD{}, false},
		"forwarded": {metadata.NewOutgoingContext(serving(background, own, mark),
			metadata.Join(own, mark)), own, false},
		"forwarded, appended": {metadata.AppendToOutgoingContext(serving(background, mark),
			"Grpc-Previous-Rpc-Attempts", "1"), metadata.MD{}, false},
		"forwarded in part": {metadata.AppendToOutgoingContext(
			serving(background, metadata.Pairs(rpc.InFlightHeader, "1")), rpc.InFlightHeader, "1"), metadata.MD{}, false},
		"forwarded, no flight": {metadata.AppendToOutgoingContext(
			serving(background, metadata.Pairs(rpc.AttemptsHeader, "1")), rpc.AttemptsHeader, "1"), metadata.MD{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := metadata.FromOutgoingContext(tc.ctx)
			ctx := unmarked(tc.ctx)
			if (ctx == tc.ctx) != tc.same || tc.same && testing.AllocsPerRun(100, func() { unmarked(tc.ctx) }) > 0 {
				t.Errorf("same %v; or it allocates", ctx == tc.ctx)
			}
			got, _ := metadata.FromOutgoingContext(ctx)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("a primary: %s", diff)
			}
			var win [2]func()
			for n := 1; n <= 2; n++ { // the second is a hedge within a hedge
				ctx, win[n-1] = race.HedgeContext(ctx, n, n == 1)
				got, _ = metadata.FromOutgoingContext(ctx)
				want := metadata.Join(tc.want, metadata.Pairs(rpc.AttemptsHeader, string(rune('0'+n))))
				if n == 1 {
					want.Set(rpc.InFlightHeader, "1")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("hedge %d: %s", n, diff)
				}
			}
			child := metadata.AppendToOutgoingContext(ctx, "more", "1") // which copies the marks
			for n := 2; n >= 1; n-- {
				if unmarked(ctx) != ctx || unmarked(child) != child {
					t.Error("a call made within a hedge is not numbered as a hedge")
				}
				win[n-1]()
			}
			for _, ctx := range []context.Context{ctx, child, unmarked(child)} {
				got, _ := metadata.FromOutgoingContext(unmarked(ctx))
				delete(got, "more")
				if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" ||
					race.MadeForHedge(ctx) != (rpc.PreviousAttempts(ctx) > 0) {
					t.Errorf("both hedges have won: %s", diff)
				}
			}
			if got, _ := metadata.FromOutgoingContext(ctx); len(got[rpc.AttemptsHeader]) > len(before[rpc.AttemptsHeader]) {
				t.Errorf("marked without an interceptor: %v", got)
			}
		})
	}
}

type key struct{}

// TestRule08_NoGoroutineForTheContext derives cancelable contexts from an attempt's, as gRPC does:
// cancellation must need no goroutine.
func TestRule08_NoGoroutineForTheContext(t *testing.T) {
	caller, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
	defer cancel()
	own, end := context.WithCancelCause(caller)
	record := place.New("target", new(atomic.Int64))
	primary := race.Placed(own, record, nil)
	hedge, _ := race.HedgeContext(own, 1, true)
	before := runtime.NumGoroutine()
	for _, ctx := range []context.Context{primary, hedge, race.Placed(hedge, place.Hidden, nil)} {
		derived, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if derived.Value(key{}) != "value" {
			t.Error("the caller's values are lost")
		}
		defer func() {
			if derived.Err() == nil {
				t.Error("the end of an attempt did not reach gRPC")
			}
		}()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	end(nil)
}

func TestContext_Backends(t *testing.T) {
	record := place.New("target", new(atomic.Int64))
	ctx, hedge := race.Placed(t.Context(), record, nil), race.Placed(t.Context(), record, new(place.Hedge))
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		target string
		record *place.Record
		hedge  bool
	}{
		{name: "primary", ctx: ctx, target: "target", record: record},
		{name: "hedge", ctx: hedge, target: "target", record: record, hedge: true},
		{name: "a call on another connection, under an attempt's context", ctx: hedge, target: "other"},
		{name: "a hedge whose policy hides the record from its child", ctx: race.Placed(hedge, place.Hidden, nil),
			target: "target"},
		{name: "a call of its own, under an attempt's context", ctx: race.Placed(hedge, nil, nil), target: "target"},
		{name: "no attempt", ctx: t.Context(), target: "target"},
	} {
		if r, h := race.Of(tc.ctx).Backends(tc.target); r != tc.record || (h != nil) != tc.hedge {
			t.Errorf("%s: record %p, hedge %v; want %p, and a hedge: %t", tc.name, r, h, tc.record, tc.hedge)
		}
	}
}

// TestContext_Makes installs two schedulers on one connection. A call under both attempts is an attempt
// of each of them, until the attempt has been made.
func TestContext_Makes(t *testing.T) {
	conn, other := new(grpc.ClientConn), new(grpc.ClientConn)
	outer := &race.Context{Context: t.Context()}
	outer.Describe("outer", conn, "/a/B", false, nil)
	inner := &race.Context{Context: context.WithValue(outer, key{}, "value")}
	inner.Describe("inner", nil, "/a/B", true, nil)
	for _, tc := range []struct {
		name          string
		by            any
		conn          *grpc.ClientConn
		method        string
		attempt, away bool
	}{
		{name: "the same connection", by: "outer", conn: conn, method: "/a/B", attempt: true},
		{name: "another connection", by: "outer", conn: other, method: "/a/B"},
		{name: "another method", by: "outer", conn: conn, method: "/a/C"},
		{name: "a hedge's destination", by: "inner", conn: other, method: "/a/B", attempt: true, away: true},
		{name: "another scheduler", by: "third", conn: conn, method: "/a/B"},
	} {
		attempt, away := race.Of(inner).Makes(tc.by, tc.conn, tc.method)
		if attempt != tc.attempt || away != tc.away {
			t.Errorf("%s: an attempt: %v, away: %v; want %v, %v", tc.name, attempt, away, tc.attempt, tc.away)
		}
	}
	outer.Made.Store(true)
	if attempt, _ := race.Of(inner).Makes("outer", conn, "/a/B"); attempt {
		t.Error("a later call under the context of an attempt is a call of its own")
	}
	if race.Of(t.Context()) != nil {
		t.Error("there is no attempt in the context of a test")
	}
}

const ms = time.Millisecond

// policy admits every hedge, and counts.
type policy struct {
	hedges   int
	failover bool // a failure makes the next hedge due
	admitted int

	final     race.State
	untouched int
	sent      atomic.Int32
	losers    atomic.Int32
}

func (p *policy) Admit(n, _ int, _ *race.State) race.Event {
	if n > p.hedges {
		return race.Event{Kind: race.Refused}
	}
	p.admitted++
	return race.Event{Kind: race.Admitted}
}
func (p *policy) Judge(n int, end race.End, _ bool) race.Event {
	e := race.Event{Kind: race.Ended, Attempt: uint8(n)}
	if end.Err != nil {
		e.End, e.Failover = race.NonFatal, p.failover
	}
	return e
}
func (p *policy) Ended(r *race.State)     { p.final = *r }
func (p *policy) EndedUntouched(race.End) { p.untouched++ }
func (p *policy) Sent(int, race.Cause)    { p.sent.Add(1) }
func (p *policy) LoserPanicked()          { p.losers.Add(1) }

// plan is the plan of a call that begins now.
func plan(delay time.Duration, hedges int) race.Plan {
	return race.Plan{Rules: race.Rules{Delay: delay, MaxHedges: uint8(hedges)}, Start: time.Now(), Due: delay}
}

// entrant takes its time for each step.
type entrant struct {
	ctx     context.Context
	primary time.Duration
	err     error        // the primary's
	do      func() error // instead, if it is not nil

	replayable func() bool
	prepare    func(n int) bool
	run        func(n int) time.Duration
	hedge      func(n int, ctx context.Context) error // instead of run, if it is not nil

	preparing    int // now; the race has it be 0 or 1
	ran          atomic.Int32
	began        time.Time
	primaryEnded time.Duration
}

func (e *entrant) Primary() race.End {
	if e.do != nil {
		return race.End{Err: e.do()}
	}
	select {
	case <-time.After(e.primary):
	case <-e.ctx.Done():
		e.err = e.ctx.Err()
	}
	e.primaryEnded = time.Since(e.began)
	return race.End{Err: e.err}
}
func (e *entrant) Replayable() bool { return e.replayable == nil || e.replayable() }
func (e *entrant) Hedge(n int, _ *race.Context) race.Attempt {
	e.preparing++
	defer func() { e.preparing-- }()
	if e.preparing > 1 {
		panic("two hedges are prepared at once")
	}
	if e.prepare != nil && !e.prepare(n) {
		return nil
	}
	return &running{e, n}
}

type running struct {
	*entrant
	n int
}

func (r *running) Run(ctx *race.Context) race.End {
	if r.ran.Add(1); r.hedge != nil {
		return race.End{Err: r.hedge(r.n, ctx)}
	}
	select {
	case <-time.After(r.run(r.n)):
		return race.End{}
	case <-ctx.Done():
		return race.End{Err: ctx.Err(), Served: true}
	}
}

// slow prepares one hedge in the given time, and all others at once.
func slow(hedge int, takes time.Duration) func(int) bool {
	return func(n int) bool {
		if n == hedge {
			time.Sleep(takes)
		}
		return true
	}
}

// TestPreparing prepares hedges, due at 10, 20 and 30 ms, and checks who waits for that. A panic of
// the preparation surfaces, or is dropped if the call is decided. A panic of the primary unwinds
// only when no goroutine reads the caller's request.
func TestPreparing(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		entrant *entrant
		hedges  int

		took    time.Duration
		primary time.Duration // when the primary has ended; 0: took; -1: it has not
		winner  int
		err     error
		panics  any
		ran     int
		dropped int
	}{
		"the primary's caller waits for a hedge that reads its request": {hedges: 1, took: 40 * ms, primary: 15 * ms, dropped: 1,
			entrant: &entrant{primary: 15 * ms, prepare: slow(1, 30*ms)}},
		"and for one that looks at it": {hedges: 1, took: 40 * ms, primary: 15 * ms,
			entrant: &entrant{primary: 15 * ms, replayable: func() bool { time.Sleep(30 * ms); return true }}},
		"a failure too, and none is sent": {hedges: 1, took: 40 * ms, primary: 15 * ms, err: broken, dropped: 1,
			entrant: &entrant{primary: 15 * ms, err: broken, prepare: slow(1, 30*ms), run: after(5 * ms)}},
		"a hedge's win ends the primary at once": {hedges: 2, took: 50 * ms, primary: 25 * ms, winner: 1, ran: 1, dropped: 1,
			entrant: &entrant{primary: time.Hour, prepare: slow(2, 30*ms), run: after(15 * ms)}},
		"the next hedge is due a delay after it was sent": {hedges: 2, took: 60 * ms, winner: 2, ran: 2,
			entrant: &entrant{primary: time.Hour, prepare: slow(1, 35*ms),
				run: func(n int) time.Duration { return []time.Duration{0, time.Hour, 5 * ms}[n] }}},
		"one that cannot be made is none": {hedges: 3, took: 50 * ms, dropped: 1,
			entrant: &entrant{primary: 50 * ms, prepare: func(int) bool { return false }}},
		"nor if it was decided": {hedges: 3, took: 30 * ms, primary: 15 * ms, dropped: 1,
			entrant: &entrant{primary: 15 * ms, prepare: func(int) bool { time.Sleep(20 * ms); return false }}},
		"a request that cannot be repeated is not": {hedges: 3, took: 50 * ms,
			entrant: &entrant{primary: 50 * ms, replayable: func() bool { return false }}},
		"a panic before the end": {hedges: 1, took: 30 * ms, panics: "prepare", dropped: 1,
			entrant: &entrant{primary: time.Hour, prepare: panicsLate}},
		"a panic before the hedge is admitted": {hedges: 1, took: 30 * ms, panics: "prepare",
			entrant: &entrant{primary: time.Hour, replayable: func() bool { return panicsLate(1) }}},
		"a panic after it": {hedges: 1, took: 30 * ms, primary: 15 * ms, dropped: 1,
			entrant: &entrant{primary: 15 * ms, prepare: panicsLate}},
		"a panic before the hedge is admitted, after the end": {hedges: 1, took: 30 * ms, primary: 15 * ms,
			entrant: &entrant{primary: 15 * ms, replayable: func() bool { return panicsLate(1) }}},
		"a panic of the primary": {hedges: 1, took: 40 * ms, primary: -1, panics: "primary", dropped: 1,
			entrant: &entrant{do: func() error { time.Sleep(15 * ms); panic("primary") }, prepare: slow(1, 30*ms)}},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			e, p := tc.entrant, &policy{hedges: tc.hedges}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			e.ctx, e.began = ctx, time.Now()
			var out race.Result
			panicked := func() (v any) {
				defer func() { v = recover() }()
				out = new(race.Race).Run(t.Context(), cancel, plan(10*ms, tc.hedges), p, e)
				return nil
			}()
			if p, ok := panicked.(*race.Panic); ok {
				panicked = p.Value
			}
			took, winner := time.Since(e.began), 0
			if out.Winner != nil {
				winner = out.Winner.(*running).n
			}
			if tc.primary == 0 {
				tc.primary = tc.took
			}
			if took != tc.took || e.primaryEnded != max(tc.primary, 0) {
				t.Errorf("ended after %v, want %v; the primary %v, want %v", took, tc.took, e.primaryEnded, tc.primary)
			}
			if winner != tc.winner || out.Err != tc.err || panicked != tc.panics {
				t.Errorf("hedge %d with %v, panic %v; want hedge %d with %v, panic %v",
					winner, out.Err, panicked, tc.winner, tc.err, tc.panics)
			}
			synctest.Wait()
			dropped := p.admitted - int(p.sent.Load())
			if int(e.ran.Load()) != tc.ran || dropped != tc.dropped || e.preparing != 0 ||
				p.final.Hedges != int(p.sent.Load()) {
				t.Errorf("%d hedges ran, %d were admitted and not sent; want %d, %d; the report has %d, the policy %d",
					e.ran.Load(), dropped, tc.ran, tc.dropped, p.final.Hedges, p.sent.Load())
			}
		})
	}
}

func after(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func panicsLate(int) bool { time.Sleep(20 * ms); panic("prepare") }
