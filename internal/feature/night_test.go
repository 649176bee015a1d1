package feature_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// The gate of CONTRIBUTING.md, which is not part of the library.

// asleep is why a hedge was not sent.
const asleep stats.Reason = "asleep"

// Hours is a gate that lets no hedge pass between two times of the day, in UTC.
type Hours struct{ From, To time.Duration }

// Admit refuses hedges at night. The call may still get one later, when that is over.
func (h Hours) Admit(d *feature.Due) feature.Verdict {
	now := d.Now.UTC()
	age := now.Sub(now.Truncate(24 * time.Hour))
	if h.From <= age && age < h.To {
		return feature.Later(asleep)
	}
	return feature.Pass
}

// TestGate_Night plugs the gate in, and makes slow calls all day.
func TestGate_Night(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reasons []stats.Reason
		trace := &hedge.Trace{HedgeHeldBack: func(e stats.HedgeHeldBack) { reasons = append(reasons, e.Reason) }}
		s, err := hedge.New(hedge.WithAllMethods(), hedge.WithTrace(trace), hedge.WithTrigger(hedge.Fixed(time.Millisecond)))
		if err != nil {
			t.Fatal(err)
		}
		const target, method = "dns:///test", "/pkg.Svc/Get"
		settings := registry.Of(s).Method(target, method, time.Now()).Settings()
		settings.Gates = slices.Insert(settings.Gates, 0, feature.Gate(Hours{2 * time.Hour, 3 * time.Hour}))

		hedges := map[int]int64{} // by the hour
		for range 24 * 60 {
			hour, before := time.Now().UTC().Hour(), s.Stats().Hedges
			_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (struct{}, error) {
				time.Sleep(5 * time.Millisecond)
				return struct{}{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			hedges[hour] += s.Stats().Hedges - before
			time.Sleep(time.Minute - 5*time.Millisecond)
		}
		if hedges[2] != 0 || hedges[1] == 0 || hedges[3] == 0 {
			t.Errorf("hedges by the hour: %v, want none from two to three", hedges)
		}
		if !slices.Contains(reasons, asleep) {
			t.Error("nobody was told why")
		}
	})
}
