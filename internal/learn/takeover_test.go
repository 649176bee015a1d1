package learn_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/learn"
)

// oneInTwenty is lognormal with a median of so many ms, and eight times that with 5%.
func oneInTwenty(median float64) attemptLaw {
	return func(seed, id uint64, attempt int, _ time.Duration) time.Duration {
		r := generator(seed, id, attempt)
		d := median * math.Exp(0.45*r.NormFloat64())
		if chanceOf(r, 0.05) {
			d *= 8
		}
		return inMillis(d)
	}
}

// newcomers are sixty clients that each make so many calls.
func newcomers(law attemptLaw, seed uint64, c *learn.Config, k learn.Knowledge) (calls []outcome) {
	for client := range uint64(60) {
		sim := simulation{law: law, calls: 300, rate: 30, seed: 1000*seed + client, config: c, taken: k}
		calls = append(calls, sim.run().done...)
	}
	return calls
}

// TestTakeOver_Newcomers has clients that live for ten seconds take over what another client has learned. With a bucket that
// is never empty it is 0.34 of none's; that of a new client holds one token.
func TestTakeOver_Newcomers(t *testing.T) {
	law := oneInTwenty(5)
	for seed := uint64(1); seed <= seeds(); seed++ {
		donor := simulation{law: law, calls: 6_000, rate: 30, seed: 77 + seed, config: config()}.run()
		known := donor.learner.Knowledge(donor.time())
		unhedged := config()
		unhedged.MaxHedges = 0
		none := tail(newcomers(law, seed, unhedged, learn.Knowledge{}), 0.99)
		cold := newcomers(law, seed, config(), learn.Knowledge{})
		warm := newcomers(law, seed, config(), known)
		t.Logf("p99 %.3f of none's without, %.3f with; load %.2f%%, %.2f%%", tail(cold, 0.99)/none, tail(warm, 0.99)/none, load(cold), load(warm))
		if share := tail(warm, 0.99) / none; share > 0.44 || tail(warm, 0.99) >= tail(cold, 0.99) {
			t.Errorf("p99 is %.3f of none's, want at most 0.44, and less than without a snapshot", share)
		}
		if l := load(warm); l > 11 {
			t.Errorf("load %.2f%%, want at most 11%%", l)
		}
	}
}
