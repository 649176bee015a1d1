package race_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
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
