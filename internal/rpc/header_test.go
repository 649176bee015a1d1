package rpc

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/metadata"
)

// TestUnnumbered makes a call in the handler of a hedge, and in another one.
func TestUnnumbered(t *testing.T) {
	background := context.Background()
	own := metadata.Pairs("tenant", "blue", "authorization", "Bearer 1")
	mark := metadata.Pairs(AttemptsHeader, "1", AttemptsHeader, "2", InFlightHeader, "1")
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
			serving(background, metadata.Pairs(InFlightHeader, "1")), InFlightHeader, "1"), metadata.MD{}, false},
		"forwarded, no flight": {metadata.AppendToOutgoingContext(
			serving(background, metadata.Pairs(AttemptsHeader, "1")), AttemptsHeader, "1"), metadata.MD{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := metadata.FromOutgoingContext(tc.ctx)
			ctx := Unnumbered(tc.ctx)
			if (ctx == tc.ctx) != tc.same || tc.same && testing.AllocsPerRun(100, func() { Unnumbered(tc.ctx) }) > 0 {
				t.Errorf("same %v; or it allocates", ctx == tc.ctx)
			}
			got, _ := metadata.FromOutgoingContext(ctx)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("a primary: %s", diff)
			}
			var hedges []*Hedge
			for n := 1; n <= 2; n++ { // the second is a hedge within a hedge
				hedges = append(hedges, HedgeContext(ctx, n, n == 1))
				ctx = hedges[n-1]
				got, _ = metadata.FromOutgoingContext(ctx)
				want := metadata.Join(tc.want, metadata.Pairs(AttemptsHeader, string(rune('0'+n))))
				if n == 1 {
					want.Set(InFlightHeader, "1")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("hedge %d: %s", n, diff)
				}
			}
			child := metadata.AppendToOutgoingContext(ctx, "more", "1") // which copies the marks
			for n := 2; n >= 1; n-- {
				if Unnumbered(ctx) != ctx || Unnumbered(child) != child {
					t.Error("a call made within a hedge is not numbered as a hedge")
				}
				hedges[n-1].Won()
			}
			for _, ctx := range []context.Context{ctx, child, Unnumbered(child)} {
				got, _ := metadata.FromOutgoingContext(Unnumbered(ctx))
				delete(got, "more")
				if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" ||
					MadeForHedge(ctx) != (PreviousAttempts(ctx) > 0) {
					t.Errorf("both hedges have won: %s", diff)
				}
			}
			if got, _ := metadata.FromOutgoingContext(ctx); len(got[AttemptsHeader]) > len(before[AttemptsHeader]) {
				t.Errorf("marked without an interceptor: %v", got)
			}
		})
	}
}
