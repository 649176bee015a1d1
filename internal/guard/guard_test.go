package guard_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

// otherTenant refuses perSecond attempts a second of the methods, or of all methods, as if another
// client used up the limit.
func otherTenant(perSecond float64, methods ...int) func(*world, *method, int) bool {
	return func(w *world, m *method, _ int) bool {
		rate, listed := 0.0, false
		for i, o := range w.methods {
			if len(methods) == 0 || slices.Contains(methods, i) {
				rate += o.rate(w.age())
				listed = listed || o == m
			}
		}
		return listed && w.random.Float64() < perSecond/rate
	}
}

// bursts refuses half of the attempts in each interval until it has refused n.
func bursts(n int, every time.Duration) func(*world, *method, int) bool {
	next, left := every/2, 0
	return func(w *world, _ *method, _ int) bool {
		if w.age() >= next {
			next, left = next+every, n
		}
		if left == 0 || w.random.IntN(2) == 0 {
			return false
		}
		left--
		return true
	}
}

// limit refuses the attempts beyond a token bucket.
func limit(perSecond, burst float64) func(*world, *method, int) bool {
	tokens, last := burst, start
	return func(w *world, _ *method, _ int) bool {
		tokens, last = min(burst, tokens+perSecond*w.now.Sub(last).Seconds()), w.now
		if tokens < 1 {
			return true
		}
		tokens--
		return false
	}
}

// TestGuard_ExhaustedWithoutHedges: RESOURCE_EXHAUSTED that hedges do not cause, at any frequency,
// costs few hedges after half an hour, and so do requests that are too large for any server.
func TestGuard_ExhaustedWithoutHedges(t *testing.T) {
	longtest.Computation(t)
	type cause struct {
		name  string
		rate  float64
		begin func(w *world)
	}
	var causes []cause
	for _, every := range []float64{.2, 1, 5, 60, 300, 660, .5, 2, 20, 120, 1800}[:longtest.Size(6, 11)] {
		for _, rate := range longtest.First(2, []float64{100, 1, 10, 0.2}) {
			if rate*every > 1 {
				causes = append(causes, cause{fmt.Sprintf("%v s between failures", every), rate,
					func(w *world) { w.refuses = otherTenant(1 / every) }})
			}
		}
	}
	for _, every := range []time.Duration{10, 60, 200, 310, 660, 30, 90, 120, 180, 220, 240, 290, 400,
		1300}[:longtest.Size(5, 14)] {
		for _, n := range longtest.First(1, []int{8, 50}) {
			causes = append(causes, cause{fmt.Sprintf("%d s between bursts", every), 100,
				func(w *world) { w.refuses = bursts(n, every*second) }})
		}
	}
	for _, tc := range append(causes,
		cause{"bursts that are much longer than hedges could cause", 2,
			func(w *world) { w.refuses = bursts(51, 336*second) }},
		cause{"one in 100 is too large", 100, func(w *world) { w.large = .01 }},
		cause{"a third are too large", 100, func(w *world) { w.large = .3 }}) {
		short, sum := 3, 0.0
		if tc.rate > 1 { // many calls: seeds differ little
			short = 1
		}
		seeds := longtest.Size(short, 10)
		for seed := range uint64(seeds) {
			w := newWorld(seed, tc.rate)
			tc.begin(w)
			w.pass(30 * time.Minute)
			sum += w.pass(2 * time.Hour)
		}
		if mean := sum / float64(seeds); mean < 0.9 {
			t.Errorf("%v calls a second, %s: %.3f of hedges are sent", tc.rate, tc.name, mean)
		}
	}
}

// TestGuard_OtherMethods: failures of one method affect no other method; failures of two affect all
// while they last.
func TestGuard_OtherMethods(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		name          string
		first, second float64 // due hedges per call of the two methods that are refused
		third         bool    // hedges of the third are held back
	}{
		{name: "no hedges"},
		{name: "hedges of one", first: 0.1},
		{name: "hedges of both", first: 0.1, second: 0.1, third: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(1)
			w.add(always(50), tc.first)
			w.add(always(50), tc.second)
			w.add(always(50), 0.1)
			w.pass(time.Minute)
			w.refuses = otherTenant(20, 0, 1)
			least := [3]float64{1, 1, 1}
			for range 600 {
				w.pass(second / 10)
				for i := range least {
					least[i] = min(least[i], w.state(i).Share)
				}
			}
			for i, want := range []bool{tc.first > 0, tc.second > 0 || tc.third, tc.third} {
				if got := least[i] < 1; got != want {
					t.Errorf("hedges of method %d are held back: %v, want %v", i, got, want)
				}
			}
			w.pass(30 * time.Minute)
			if share := w.pass(30 * time.Minute); share < 0.9 {
				t.Errorf("%.3f of hedges are sent after half an hour", share)
			}
		})
	}
}

// TestGuard_ALimit: near a limit that hedges would use up, hedges make few calls fail, in one method or
// in several that share the limit, and at a limit without room for any hedge next to none.
func TestGuard_ALimit(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		rate, load float64
		methods    int
		most       float64 // percent of calls
	}{
		{rate: 20, load: 1.0, methods: 1, most: 0.7},
		{rate: 20, load: 1.1, methods: 1, most: 2.2},
		{rate: 200, load: 0.96, methods: 1, most: 0.06},
		{rate: 200, load: 1.1, methods: 1, most: 0.25},
		{rate: 200, load: 0.96, methods: 10, most: 0.08},
	} {
		failed := [2]float64{} // percent, plain and hedged
		for hedged := range failed {
			for seed := range uint64(longtest.Size(2, 6)) {
				w := newWorld(seed)
				for range tc.methods {
					w.add(always(tc.rate/float64(tc.methods)), 0.1*float64(hedged))
				}
				w.refuses = limit(tc.rate/tc.load, tc.rate/4)
				w.pass(4 * time.Hour * 20 / time.Duration(tc.rate) * 5)
				failed[hedged] += 100 * float64(w.failed) / float64(w.made) / float64(longtest.Size(2, 6))
			}
		}
		if more := failed[1] - failed[0]; more > tc.most {
			t.Errorf("%v calls a second of %v, %d methods: %.3f%% more calls fail, want at most %v", tc.rate, tc.rate/tc.load,
				tc.methods, more, tc.most)
		}
	}
}

// TestGuard_AfterTheCause: 15 minutes after any cause has ended, at least 90% of hedges are sent,
// under any traffic.
func TestGuard_AfterTheCause(t *testing.T) {
	longtest.Computation(t)
	for seed := range uint64(longtest.Table(40, 200, 1000)) {
		random := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(seed)
		for range 1 + random.IntN(4) {
			rate, on, off := math.Exp(random.Float64()*6-2), 1+random.IntN(300), random.IntN(2)*random.IntN(300)
			w.add(func(at time.Duration) float64 {
				if int(at.Seconds())%(on+off) >= on {
					return rate / 100
				}
				return rate
			}, random.Float64()/5)
		}
		all := 0.0
		for _, m := range w.methods {
			all += m.rate(0)
		}
		switch random.IntN(4) {
		case 0:
			w.refuses = otherTenant(all * random.Float64())
		case 1:
			w.refuses = bursts(1+random.IntN(50), time.Duration(10+random.IntN(900))*second)
		case 2:
			w.refuses = limit(all*(0.5+random.Float64()), 1+all/10)
		case 3:
			w.large = random.Float64() / 2
		}
		w.pass(time.Duration(random.IntN(7200)) * second)
		w.refuses, w.large = nil, 0
		w.pass(15 * time.Minute)
		for i := range w.methods {
			if got := w.state(i); got.Share < 0.9 {
				t.Errorf("seed %d: method %d: %+v", seed, i, got)
			}
		}
		if share := w.pass(time.Hour); share < 0.99 {
			t.Errorf("seed %d: %.3f of hedges are sent in the hour after", seed, share)
		}
	}
}

// TestGuard_Signs: a hedge that fails alone stops hedges for five seconds, and its share grows back
// within a minute.
func TestGuard_Signs(t *testing.T) {
	for _, tc := range []struct {
		name           string
		hedge          time.Duration // time since it was sent
		primary, alone int           // failures
		share          float64       // after the pause
	}{
		{name: "none", hedge: second, share: 1},
		{name: "a primary", hedge: second, primary: 1, share: 1},
		{name: "a hedge", hedge: second, alone: 1, share: 0.5},
		{name: "three hedges", hedge: second, alone: 3, share: 0.125},
		{name: "a hedge after primaries", hedge: second, primary: 2, alone: 1, share: 0.125},
		{name: "many primaries", hedge: second, primary: 10, share: 1.0 / 1024},
		{name: "many hedges", hedge: second, alone: 100},
		{name: "long after a hedge", hedge: time.Minute, primary: 100, share: 1},
		{name: "without a hedge", primary: 100, share: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(1, 1)
			m := w.methods[0]
			if tc.hedge > 0 {
				m.Sent(w.now.Add(-tc.hedge))
			}
			share := func(after time.Duration) float64 { return m.State(w.now.Add(after), w.traffic(m)).Share }
			for range tc.primary {
				m.Exhausted(w.now, w.traffic(m), false)
			}
			for range tc.alone {
				m.Exhausted(w.now, w.traffic(m), true)
			}
			if got := share(0); got != 1 && got != 0 || (got == 1) != (tc.share == 1) {
				t.Errorf("the share is %v", got)
			}
			if got := share(5 * second); math.Abs(got-tc.share) > 0.001 {
				t.Errorf("the share is %v after the pause, want %v", got, tc.share)
			}
			if got := share(65 * second); got != 1 || w.state(0).Reason != stats.GuardNone {
				t.Errorf("the share is %v after a minute", got)
			}
		})
	}
}

// TestGuard_AClockSetBack: a clock that is set back by two hours after a minute, and calls that report
// earlier times than others, change nothing.
func TestGuard_AClockSetBack(t *testing.T) {
	var guards [2]guard.Guard
	for i := range guards {
		guards[i].Target = new(guard.Shared)
	}
	begin := time.Now()
	for n := range 1200 {
		now, traffic := begin.Add(time.Duration(n)*second), guard.Traffic{Method: float64(n), Target: float64(n)}
		back := now
		if n > 60 {
			*(*uint64)(unsafe.Pointer(&back)) -= 7200 << 30 // the wall clock, and not the monotonic one
		}
		guards[1].State(back.Add(-second/2), traffic)
		if a, b := guards[0].State(now, traffic).Share, guards[1].State(back, traffic).Share; math.Abs(a-b) > 1e-9 {
			t.Fatalf("after %d s the share is %v, but %v after the clock is set back", n, a, b)
		}
		if n < 300 {
			guards[0].Sent(now)
			guards[0].Exhausted(now, traffic, n%30 == 0)
			guards[1].Sent(back)
			guards[1].Exhausted(back, traffic, n%30 == 0)
		}
	}
}

// TestGuard_Concurrently is for the race detector.
func TestGuard_Concurrently(t *testing.T) {
	var target guard.Shared
	var methods [4]guard.Guard
	for i := range methods {
		methods[i].Target = &target
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			m := &methods[i%4]
			for n := range 1000 {
				now := start.Add(time.Duration(n) * second / 10)
				traffic := guard.Traffic{Method: float64(n), Target: float64(4 * n)}
				if m.Admit(now, traffic, new(guard.Ticket)) {
					m.Sent(now)
				}
				m.Exhausted(now, traffic, n%100 == 0)
				m.State(now, traffic)
			}
		})
	}
	group.Wait()
}
