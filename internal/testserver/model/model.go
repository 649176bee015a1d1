// Package model draws the random schedules of model-based tests. Each schedule has its own seed, so
// that a failing one can be replayed alone:
//
//	go test ./stream -run '^TestSchedules$' -model.seed=5
//
// The tests define a schedule's contents and its checks.
package model

import (
	"flag"
	"iter"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

var (
	replay = flag.Uint64("model.seed", 0, "play the one schedule that has this seed")
	count  = flag.Int("model.count", 0,
		"how many schedules each test draws; 0: a few hundred, or all of them with HEDGE_TESTS=long")
)

// Counts are how many schedules a test draws without HEDGE_TESTS, with "long", and with "full" if
// that is more. The flag -model.count overrides all.
type Counts struct{ Short, Long, Full int }

// seeds returns the first seed and how many there are.
func (c Counts) seeds() (first uint64, n int) {
	switch {
	case *replay != 0:
		return *replay, 1
	case *count > 0:
		return rand.Uint64(), *count
	}
	return rand.Uint64(), longtest.Table(c.Short, c.Long, max(c.Long, c.Full))
}

// Seeds returns the seeds from 1 on: the same in each run, for tests with tight bounds. The flags
// draw others.
func (c Counts) Seeds() iter.Seq[uint64] {
	first, n := c.seeds()
	if *replay == 0 && *count == 0 {
		first = 1
	}
	return func(yield func(uint64) bool) {
		for i := range uint64(n) {
			if !yield(first + i) {
				return
			}
		}
	}
}

// Each plays schedules one after the other, until one fails. Every perBubble of them share a
// synctest bubble, and what prepare sets up in it; the function that prepare returns plays one.
// Each returns how many were to be played.
func Each(t *testing.T, counts Counts, perBubble int,
	prepare func(*testing.T) (play func(t *testing.T, seed uint64))) int {
	t.Helper()
	first, n := counts.seeds()
	for i := 0; i < n && !t.Failed(); i += perBubble {
		synctest.Test(t, func(t *testing.T) {
			play := prepare(t)
			for j := range min(perBubble, n-i) {
				seed := first + uint64(i+j)
				defer func() {
					if t.Failed() {
						t.Logf("replay with: -run '^%s$' -model.seed=%d", t.Name(), seed)
					}
				}()
				if play(t, seed); t.Failed() {
					return
				}
			}
		})
	}
	return n
}

// Draw draws the parts of one schedule.
type Draw struct{ *rand.Rand }

// New begins to draw the schedule that has the seed. Tests of different kinds pass different
// streams.
func New(seed, stream uint64) Draw { return Draw{rand.New(rand.NewPCG(seed, stream))} }

// Within draws a time from 1 ns up to most. Draws are in nanoseconds so that no two events happen
// at one instant: nothing promises the order of those.
func (d Draw) Within(most time.Duration) time.Duration {
	return 1 + time.Duration(d.Int64N(int64(most)))
}
