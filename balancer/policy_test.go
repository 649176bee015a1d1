package balancer_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

const (
	fakeA = `{"childPolicy": [{"not_there": {}}, {"test_fake_a": {"Mark": "m1"}}, {"test_fake_b": {}}]}`
	fakeB = `{"childPolicy": [{"test_fake_b": {"Mark": "m2"}}]}`
)

// newSubConn makes a connection of the child. Its states go to UpdateSubConnState or listener.
func newSubConn(t *testing.T, c *fakeChild, address string,
	listener func(grpcbalancer.SubConnState)) grpcbalancer.SubConn {
	t.Helper()
	//lint:ignore SA1019 one address is all that it has.
	sc, err := c.cc.NewSubConn([]resolver.Address{{Addr: address}},
		grpcbalancer.NewSubConnOptions{StateListener: listener})
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func state(s connectivity.State) grpcbalancer.SubConnState {
	return grpcbalancer.SubConnState{ConnectivityState: s}
}

func TestPassesThrough(t *testing.T) {
	conn, b, configure := build(t)
	b.ExitIdle() // no backend yet
	b.ResolverError(errors.New("no address"))
	if _, err := conn.pick(t.Context()); conn.states[0] != connectivity.TransientFailure || err == nil ||
		err.Error() != "no address" {
		t.Errorf("the states are %v, and a pick fails with %v; want the child's", conn.states, err)
	}
	if err := b.UpdateClientConnState(grpcbalancer.ClientConnState{}); err != grpcbalancer.ErrBadResolverState {
		t.Errorf("without a configuration: %v", err)
	}
	if err := configure(fakeA); err != errFake {
		t.Errorf("the child's error became %v", err)
	}
	a, heard := fakes["test_fake_a"], ""
	b.ResolverError(errors.New("gone"))
	b.ExitIdle()
	sc := newSubConn(t, a, "one", func(s grpcbalancer.SubConnState) { heard += s.ConnectivityState.String() + " " })
	old := newSubConn(t, a, "two", nil)
	sc.Connect()
	conn.made[0].listener(state(connectivity.Ready))
	conn.made[1].listener(state(connectivity.Connecting))
	a.say(connectivity.Ready, picksOne(sc))
	//lint:ignore SA1019 a child may use it.
	a.cc.UpdateAddresses(old, nil)
	//lint:ignore SA1019 a child may use it.
	a.cc.RemoveSubConn(old)
	a.cc.ResolveNow(resolver.ResolveNowOptions{})
	if res, err := conn.pick(t.Context()); err != nil || res.SubConn != grpcbalancer.SubConn(conn.made[0]) {
		t.Errorf("picked %v, %v", res, err)
	}
	a.say(connectivity.TransientFailure, base.NewErrPicker(errFake))
	if _, err := conn.pick(t.Context()); err != errFake {
		t.Errorf("picked with %v", err)
	}

	b.Close()
	if got := a.heard(); got != "update m1 one error gone exit state CONNECTING close" || heard != "READY " {
		t.Errorf("the child got %q and %q", got, heard)
	}
	if !slices.Equal(conn.made[0].told, []string{"connect", "shutdown"}) ||
		!slices.Equal(conn.made[1].told[:2], []string{"addresses", "shutdown"}) || conn.resolves != 1 {
		t.Errorf("the parent got %v, %v, %d", conn.made[0].told, conn.made[1].told, conn.resolves)
	}
	states := len(conn.states)
	a.say(connectivity.Ready, picksOne(sc))
	conn.made[0].listener(state(connectivity.Shutdown))
	//lint:ignore SA1019 one address is all that it has.
	if _, err := a.cc.NewSubConn([]resolver.Address{{Addr: "late"}}, grpcbalancer.NewSubConnOptions{}); err == nil ||
		configure(fakeA) == nil || len(conn.states) != states || a.heard() != "" || place.Live() {
		t.Errorf("after Close: %v, %v", err, conn.states)
	}
}

func TestSwitch(t *testing.T) {
	const ready, connecting, failure = connectivity.Ready, connectivity.Connecting, connectivity.TransientFailure
	for _, tc := range []struct {
		name     string
		old, new []connectivity.State // the states of the children, the old child after the new one exists
		switched bool
	}{
		{name: "the new one connects", new: []connectivity.State{connecting}},
		{name: "the new one is ready", new: []connectivity.State{connecting, ready}, switched: true},
		{name: "the new one has failed", new: []connectivity.State{connecting, failure}, switched: true},
		{name: "the old one has failed", old: []connectivity.State{failure}, switched: true},
		{name: "the old one says something", old: []connectivity.State{ready}, new: []connectivity.State{connecting}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, b, configure := build(t)
				_ = configure(fakeA)
				a := fakes["test_fake_a"]
				scA := newSubConn(t, a, "one", nil)
				conn.made[0].listener(state(ready))
				a.say(ready, picksOne(scA))
				_ = configure(fakeB)
				c := fakes["test_fake_b"]
				if got := c.heard(); got != "update m2 one" {
					t.Errorf("the new child got %q", got)
				}
				a.heard()
				scB := newSubConn(t, c, "two", nil)
				conn.made[1].listener(state(ready))
				for _, s := range tc.old {
					a.say(s, picksOne(scA))
				}
				for _, s := range tc.new {
					c.say(s, picksOne(scB))
				}
				synctest.Wait() // the old child closes on a goroutine of its own
				want, heard := conn.made[0], ""
				if tc.switched {
					want, heard = conn.made[1], "close"
				}
				if got := a.heard(); got != heard || slices.Contains(conn.made[0].told, "shutdown") != tc.switched {
					t.Errorf("the old child got %q, its connection %v", got, conn.made[0].told)
				}
				if len(tc.new) > 0 {
					if res, err := conn.pick(t.Context()); err != nil ||
						res.SubConn != grpcbalancer.SubConn(want) {
						t.Errorf("picked %v, %v", res, err)
					}
				}
				b.ExitIdle()
				if got := c.heard(); !strings.HasSuffix(got, "exit") {
					t.Errorf("the new child got %q", got)
				}
				if n := place.Count("fake:///target").Ready; n != 1 {
					t.Errorf("%d backends", n)
				}
				b.Close()
			})
		})
	}
}

// TestSwitch_Overtaken configures a third child while the second one is pending.
func TestSwitch_Overtaken(t *testing.T) {
	conn, b, configure := build(t)
	_ = configure(fakeA)
	a := fakes["test_fake_a"]
	sc := newSubConn(t, a, "one", nil)
	conn.made[0].listener(state(connectivity.Ready))
	a.say(connectivity.Ready, picksOne(sc))
	_ = configure(fakeB)
	overtaken := fakes["test_fake_b"]
	_ = configure(fakeA)
	overtaken.cc.ResolveNow(resolver.ResolveNowOptions{})
	b.Close()
	again := fakes["test_fake_a"]
	first, second, third := a.heard(), overtaken.heard(), again.heard()
	if first != "update m1 one state READY close" || second != "update m2 one close" || again == a ||
		third != "update m1 one close" || conn.resolves != 0 {
		t.Errorf("the children got %q, %q and %q; a closed one made the resolver run %d times", first, second, third,
			conn.resolves)
	}
}

// TestReady checks after which events a connection is listed as ready. One that connects again is no
// longer silent.
func TestReady(t *testing.T) {
	const target = "fake:///target"
	conn, b, configure := build(t)
	defer b.Close()
	_ = configure(fakeA)
	a := fakes["test_fake_a"]
	sc := newSubConn(t, a, "one", func(grpcbalancer.SubConnState) {})
	raw := conn.made[0]
	healthy := ""
	silent := func() {
		a.say(connectivity.Ready, picksOne(sc))
		for now, n := time.Now(), 0; n < 3; n++ {
			record := place.New(target, new(atomic.Int64))
			ctx := race.Placed(t.Context(), record, nil)
			_, _ = conn.pick(ctx)
			record.NoteLate(1, now.Add(time.Duration(n)*10*time.Second), ms)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"new", func() {}, 0},
		{"connecting", func() { raw.listener(state(connectivity.Connecting)) }, 0},
		{"ready", func() { raw.listener(state(connectivity.Ready)) }, 1},
		{"its health is asked for", func() {
			sc.RegisterHealthListener(func(s grpcbalancer.SubConnState) { healthy = s.ConnectivityState.String() })
		}, 0},
		{"healthy", func() { raw.health(state(connectivity.Ready)) }, 1},
		{"ill", func() { raw.health(state(connectivity.TransientFailure)) }, 0},
		{"idle", func() { raw.listener(state(connectivity.Idle)) }, 0},
		{"ready again, with no report of its health yet", func() { raw.listener(state(connectivity.Ready)) }, 1},
		{"nobody asks for its health", func() { sc.RegisterHealthListener(nil) }, 1},
		{"silent", silent, 1},
		{"connects again", func() {
			raw.listener(state(connectivity.Idle))
			raw.listener(state(connectivity.Ready))
		}, 1},
		{"shut down", sc.Shutdown, 0},
	} {
		step.do()
		if c := place.Count(target); c.Ready != step.want || (len(c.Silent) > 0) != (step.name == "silent") {
			t.Errorf("%s: %+v, want %d ready, and a silent one only if the step says so", step.name, c, step.want)
		}
	}
	if healthy != "TRANSIENT_FAILURE" {
		t.Errorf("the child last got the health state %q", healthy)
	}
}

func TestConfig(t *testing.T) {
	const missing = `childPolicy: missing or empty; it lists the policy to wrap, such as [{"round_robin": {}}]`
	for _, tc := range []struct{ config, want string }{
		{`{}`, missing},
		{`{"childPolicy": []}`, missing},
		{`{"childPolicy": [{"not_there": {}}, {"nor_there": {}}]}`,
			`childPolicy: no policy of these is registered: ["not_there" "nor_there"]`},
		{`{"childPolicy": [{"round_robin": {}, "pick_first": {}}]}`,
			`childPolicy: entry 0 has 2 policies instead of one`},
		{`{"childPolicy": [{"test_fake_a": {"Mark": "bad"}}]}`, `childPolicy: test_fake_a: mark: bad`},
		{`{"childPolicy": 7}`, `json: cannot unmarshal number`},
		{`{"childPolicy": [{"round_robin": {}}], "unknown": 1}`, ``},
		{`{"childPolicy": [{"round_robin": {}}], "connections": 0}`, `connections: 0: must be 1 to 8`},
		{`{"childPolicy": [{"round_robin": {}}], "connections": 9}`, `connections: 9: must be 1 to 8`},
		{`{"childPolicy": [{"round_robin": {}}], "connections": 8, "silence": false}`, ``},
		{`{"childPolicy": [{"not_there": {"x": 1}}, {"round_robin": {}}]}`, ``},
	} {
		if tc.want != "" {
			tc.want = "hedge: hedge_other_backend: " + tc.want
		}
		c, err := grpcbalancer.Get(balancer.Name).(grpcbalancer.ConfigParser).ParseConfig(json.RawMessage(tc.config))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tc.want) || (err == nil) != (tc.want == "") || (c != nil) != (err == nil) {
			t.Errorf("%s: %v, %v; want %s", tc.config, c, err, tc.want)
		}
		if js, _ := json.Marshal(c); err == nil && !json.Valid(js) || err == nil && len(js) < 20 {
			t.Errorf("%s: back to JSON it is %s", tc.config, js)
		}
	}
}

// TestConnections_IdleCopies checks that an idle copy is asked for a pick when the first call to an
// address begins, and not before.
func TestConnections_IdleCopies(t *testing.T) {
	conn, b, configure := build(t)
	defer b.Close()
	_ = configure(strings.TrimSuffix(fakeA, "}") + `, "connections": 2}`)
	second, open := fakes["test_fake_a"], 0
	var made []grpcbalancer.SubConn
	for i, address := range []string{"one", "two"} {
		made = append(made, newSubConn(t, second.before, address, nil))
		conn.made[i].listener(state(connectivity.Ready))
	}
	second.before.say(connectivity.Ready, inTurn(&open, made...))
	for range 3 {
		asked := 0
		second.say(connectivity.Idle, funcPicker(func() (grpcbalancer.PickResult, error) {
			asked++
			return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
		}))
		for _, want := range []int{0, 1, 2, 2, 2} {
			if asked != want || strings.Contains(second.heard(), "exit") {
				t.Errorf("the copy was asked %d times, want %d", asked, want)
			}
			if _, err := conn.pick(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPicker_ChildReturnsNoPick has a child that picks the first of two backends only, and returns no
// pick at some point of a search. The hedge then uses the child's first pick.
func TestPicker_ChildReturnsNoPick(t *testing.T) {
	conn, child, made := buildReady(t, 2)
	picks, none, open := 0, 0, 0
	first := inTurn(&open, made[0])
	child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) {
		if picks++; picks == none {
			return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
		}
		return first()
	}))
	for none = range 5 {
		picks, open = 0, 0
		record := place.New(conn.Target(), new(atomic.Int64))
		ctx := race.Placed(t.Context(), record, nil)
		res, err := conn.pick(ctx)
		if err == nil {
			res, err = conn.pick(race.Placed(t.Context(), record, new(place.Hedge)))
		}
		if first := none == 1 || none == 2; first != (err != nil) || !first && (res.SubConn != conn.made[0] || open != 2) {
			t.Errorf("no pick %d: the hedge goes to %p of %v, %v; %d picks are open", none, res.SubConn, conn.made, err, open)
		}
	}
}

// TestPicker_Nil has a child with no picker. Calls wait, as they do without the policy.
func TestPicker_Nil(t *testing.T) {
	conn, child, _ := buildReady(t, 1)
	child.say(connectivity.Connecting, nil)
	if res, err := conn.pick(t.Context()); err != grpcbalancer.ErrNoSubConnAvailable {
		t.Errorf("picked %v, %v, want to wait", res.SubConn, err)
	}
}

// TestPicker_AsksBounded has a child that always picks the same of two connections. It is asked 16
// times for an attempt at most, and seldom if that never helps. Each pick is given back or used.
func TestPicker_AsksBounded(t *testing.T) {
	conn, child, made := buildReady(t, 2)
	asked, open, most, all := 0, 0, 0, 0
	first := inTurn(&open, made[0])
	child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) { asked++; return first() }))
	const hedges = 1000
	for range hedges {
		record := place.New(conn.Target(), new(atomic.Int64))
		ctx := race.Placed(t.Context(), record, nil)
		for _, ctx := range []context.Context{ctx, race.Placed(t.Context(), record, new(place.Hedge))} {
			asked = 0
			res, err := conn.pick(ctx)
			if err != nil || res.SubConn != conn.made[0] || open != 1 {
				t.Fatalf("%v, %v; %d picks are open", res.SubConn, err, open)
			}
			res.Done(grpcbalancer.DoneInfo{})
			most, all = max(most, asked), all+asked
		}
	}
	if most > 16 || all > 4*hedges {
		t.Errorf("asked %d times for one attempt, %d for %d hedges", most, all, hedges)
	}
}

// TestPicker_Allocations counts the allocations of a primary's pick beyond the child's: none, or one
// to tell the child how an attempt of a call that may be hedged ends.
func TestPicker_Allocations(t *testing.T) {
	conn, child, made := buildReady(t, 3)
	var again atomic.Int64
	grpcs := func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, "grpc", "1") }
	caller, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "tenant", "blue"), time.Hour)
	defer cancel()
	var unhedged, hedged []context.Context
	for range 1001 { // a record for each call
		c := race.Placed(caller, place.New(conn.Target(), &again), nil)
		unhedged, hedged = append(unhedged, grpcs(caller)), append(hedged, grpcs(c))
	}
	for _, tc := range []struct {
		name string
		done func(grpcbalancer.DoneInfo)
		ctxs []context.Context
		most float64
	}{
		{name: "without a Done", ctxs: hedged},
		{name: "with a Done", done: func(grpcbalancer.DoneInfo) {}, ctxs: hedged, most: 1},
		{name: "not hedged, with a Done", done: func(grpcbalancer.DoneInfo) {}, ctxs: unhedged},
	} {
		next := 0
		child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) {
			return grpcbalancer.PickResult{SubConn: made[next%3], Done: tc.done}, nil
		}))
		if n := testing.AllocsPerRun(len(tc.ctxs)-1, func() {
			if _, err := conn.pick(tc.ctxs[next]); err != nil {
				t.Error(err)
			}
			next++
		}); n > tc.most {
			t.Errorf("%s: %v allocations, want at most %v", tc.name, n, tc.most)
		}
	}
}

func TestCall_Allocations(t *testing.T) {
	plain := testserver.StartT(t, testserver.Config{}).ClientT(t)
	unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour))
	req, reply, ctx := wrapperspb.Int64(1), wrapperspb.Int64(2), t.Context()
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		_ = ctx.Done()
		return nil
	}
	allocs := func() float64 {
		return testing.AllocsPerRun(1000, func() {
			if err := unary(ctx, "/a/B", req, reply, plain, invoke); err != nil {
				t.Error(err)
			}
		})
	}
	without := allocs()
	policy := place.Enter("elsewhere")
	with := allocs()
	if policy.Leave(); with > without+1 {
		t.Errorf("%v allocations, %v with a policy", without, with)
	}
}
