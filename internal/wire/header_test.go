package wire

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
)

// carrying is the contexts of calls, by what their outgoing metadata is.
func carrying() map[string]struct {
	ctx  context.Context
	want metadata.MD // of a primary
} {
	background := context.Background()
	own := metadata.Pairs("tenant", "blue", "authorization", "Bearer 1", "traceparent", "00-1")
	forwarded := metadata.Join(own, metadata.Pairs(AttemptsHeader, "1", AttemptsHeader, "2", InFlightHeader, "1"))
	type carried = struct {
		ctx  context.Context
		want metadata.MD
	}
	return map[string]carried{
		"nothing":             {background, nil},
		"its own":             {metadata.NewOutgoingContext(background, own), own},
		"its own, appended":   {metadata.AppendToOutgoingContext(background, "tenant", "blue"), metadata.Pairs("tenant", "blue")},
		"forwarded":           {metadata.NewOutgoingContext(background, forwarded), own},
		"forwarded, appended": {metadata.AppendToOutgoingContext(metadata.NewOutgoingContext(background, own), "Grpc-Previous-Rpc-Attempts", "1"), own},
		"forwarded in part":   {metadata.NewOutgoingContext(background, metadata.Join(own, metadata.Pairs(InFlightHeader, "1"))), own},
		"in part, appended":   {metadata.AppendToOutgoingContext(background, "Hedge-Primary-In-Flight", "1"), metadata.MD{}},
		"forwarded alone":     {metadata.AppendToOutgoingContext(background, AttemptsHeader, "1"), metadata.MD{}},
	}
}

// TestUnnumbered reads the metadata of attempts in both ways, by reflection and by copying.
func TestUnnumbered(t *testing.T) {
	if outgoingKey == nil {
		t.Error("this version of gRPC keeps metadata in another way, so that each call copies it")
	}
	defer func(key any) { outgoingKey = key }(outgoingKey)
	for _, way := range []string{"by reflection", "by copying"} {
		for name, tc := range carrying() {
			t.Run(name+", "+way, func(t *testing.T) {
				ctx := Unnumbered(tc.ctx)
				got, _ := metadata.FromOutgoingContext(ctx)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("a primary: %s", diff)
				}
				for n := 1; n <= 2; n++ { // the second is a hedge within a hedge
					ctx = HedgeContext(ctx, n, n == 1)
					got, _ = metadata.FromOutgoingContext(ctx)
					want := metadata.Join(tc.want, metadata.Pairs(AttemptsHeader, string(rune('0'+n))))
					if n == 1 {
						want.Set(InFlightHeader, "1")
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("hedge %d: %s", n, diff)
					}
				}
				if Unnumbered(ctx) != ctx {
					t.Error("a call within a hedge is no further attempt any more")
				}
			})
		}
		outgoingKey = nil
	}
}

func TestUnnumbered_AllocatesNothing(t *testing.T) {
	for name, tc := range carrying() {
		if numbered(tc.ctx) {
			continue
		}
		if allocs := testing.AllocsPerRun(100, func() { Unnumbered(tc.ctx) }); allocs > 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func copied(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(md.Get(AttemptsHeader)) > 0
}

// BenchmarkUnnumbered is the price of the look, beside what gRPC's exported copy would cost.
func BenchmarkUnnumbered(b *testing.B) {
	for _, name := range []string{"nothing", "its own"} {
		ctx := carrying()[name].ctx
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Unnumbered(ctx)
			}
		})
		b.Run(name+", by copying", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				copied(ctx)
			}
		})
	}
}
