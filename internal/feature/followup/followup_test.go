package followup_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/feature/followup"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// TestDraw_AsManyAsAreUseful: at most one call in twenty is drawn, and about one loser a second is followed; one call in five
// is drawn until 30 are known.
func TestDraw_AsManyAsAreUseful(t *testing.T) {
	longtest.Computation(t)
	for _, c := range []struct {
		name      string
		rate      float64
		first     float64 // the share that is drawn of the first calls
		drawn     float64 // afterwards
		perSecond float64
	}{
		{"one call a second", 1, 0.2, 0.06, 0.06 * 0.026}, // thirty losers take hours
		{"20 a second", 20, 0.2, 0.05, 0.05 * 0.026 * 20},
		{"200 a second", 200, 0.2, 0.05, 0.05 * 0.026 * 200},
		{"1,000 a second", 1_000, 0.2, 1 / (1_000 * 0.026), 1},
		{"10,000 a second", 10_000, 0.2, 1 / (10_000 * 0.026), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(1, straggler, c.rate)
			calls := max(20_000, min(c.rate*1200, 1_000_000))
			for range int(calls) {
				w.call()
			}
			if c.rate < 10_000 { // it was 30 at once
				near(t, "share drawn at first", w.drawn(0), c.first, 0.06)
			}
			w.followed = 0
			since := w.now
			for range int(calls) {
				w.call()
			}
			near(t, "share drawn", w.drawn(int(calls)), c.drawn, 0.25*c.drawn)
			near(t, "followed a second", float64(w.followed)/w.now.Sub(since).Seconds(), c.perSecond, 0.35*c.perSecond)
		})
	}
}

// TestDraw_FewOfABusyMethod: at most 100 calls a second are drawn, however many there are: where no hedge is ever due, so that
// thirty losers are never known, and where they are known and a primary is cut short once a second.
func TestDraw_FewOfABusyMethod(t *testing.T) {
	const rate = 20_000
	for _, known := range []int{0, 30} {
		m, now, drawn := followup.New(5, 0.99, 1, nil, new(followup.Room)), time.Unix(1e9, 0), 0.0
		for range known {
			l := m.Add(now, followup.Call{Share: 1, Wait: time.Millisecond, Late: true, Hedges: 1, CutShort: true})
			m.Followed(now, l, time.Second, true)
		}
		now = now.Add(10 * time.Minute)
		for n := range 5 * rate {
			now = now.Add(time.Second / rate)
			call := followup.Call{Share: m.Draw(), Wait: time.Millisecond}
			if call.Share > 0 && n >= 2*rate {
				drawn++
			}
			if known > 0 && n%rate == 0 {
				call = followup.Call{Wait: time.Millisecond, Late: true, Hedges: 1, CutShort: true}
			}
			m.Add(now, call)
		}
		near(t, "drawn a second", drawn/3, 100, 25)
	}
}

// TestDraw_FewOfABurst: of calls that come in bursts hardly a greater share is drawn than of as many that come all the time.
func TestDraw_FewOfABurst(t *testing.T) {
	const rate = 10_000
	m, now, drawn, calls := followup.New(5, 0.99, 1, nil, new(followup.Room)), time.Unix(1e9, 0), 0.0, 0.0
	for second := range 20 {
		for range rate / 10 { // a burst of 100 ms
			now = now.Add(time.Second / rate)
			call := followup.Call{Share: m.Draw(), Wait: time.Millisecond}
			if second >= 2 {
				calls++
				if call.Share > 0 {
					drawn++
				}
			}
			m.Add(now, call)
		}
		now = now.Add(900 * time.Millisecond)
	}
	near(t, "share drawn", drawn/calls, 1.5*100/rate, 0.5*100/rate)
}

// TestDraw_AtAnyPace: at most 100 calls a second are drawn of calls that come at random, at any pace.
func TestDraw_AtAnyPace(t *testing.T) {
	for _, rate := range []int{500, 1000, 2000, 5000} {
		r := rand.New(rand.NewPCG(1, 2))
		m, now, drawn := followup.New(5, 0.99, 1, nil, new(followup.Room)), time.Unix(1e9, 0), 0.0
		for i := range 30 * rate {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(time.Second) / float64(rate)))
			call := followup.Call{Share: m.Draw(), Wait: time.Millisecond}
			if call.Share > 0 && i >= 10*rate {
				drawn++
			}
			m.Add(now, call)
		}
		near(t, fmt.Sprintf("drawn a second of %d", rate), drawn/20, 100, 10)
	}
}

// TestDraw_CallsAreToldInAnyOrder: one call in so many ended a while ago when it is told, as a primary that has lost may take long to
// return.
func TestDraw_CallsAreToldInAnyOrder(t *testing.T) {
	const rate = 20_000
	for _, lag := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond} {
		for _, every := range []int{20, 1000} {
			m, now, drawn := followup.New(5, 0.99, 1, nil, new(followup.Room)), time.Unix(1e9, 0), 0.0
			for i := range 15 * rate {
				now = now.Add(time.Second / rate)
				call, at := followup.Call{Share: m.Draw(), Wait: time.Millisecond}, now
				if call.Share > 0 && i >= 5*rate {
					drawn++
				}
				if i%every == 0 {
					call.Late, call.Hedges, at = true, 1, now.Add(-lag)
				}
				m.Add(at, call)
			}
			near(t, fmt.Sprintf("drawn a second, one in %d told %v late", every, lag), drawn/10, 90, 20)
		}
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %.4f, want %.4f ± %.4f", what, got, want, within)
	}
}

// TestDraw_FollowsFromTheSeed: the same calls are drawn for the same seed, and others for another.
func TestDraw_FollowsFromTheSeed(t *testing.T) {
	draws := func(seed uint64) (all [64]float32) {
		m := followup.New(5, 0.99, seed, nil, new(followup.Room))
		for i := range all {
			all[i] = m.Draw()
		}
		return all
	}
	if draws(1) != draws(1) || draws(1) == draws(2) {
		t.Error("what is drawn does not follow from the seed")
	}
}

// TestNil: without a method nothing is drawn, and nothing is said.
func TestNil(t *testing.T) {
	var m *followup.Method
	if m.Add(start, followup.Call{Late: true, CutShort: true}) != nil || m.Draw() > 0 || m.NothingToGain() {
		t.Error("it follows")
	}
	if g := m.Measure(start); g != (stats.Gain{}) {
		t.Errorf("it says %v", g)
	}
	m.Release()
}

// TestMemory: what a method takes is counted and stays under 180 KB, whatever calls take.
func TestMemory(t *testing.T) {
	var meter sketch.Meter
	m, now := followup.New(100, 0.99, 1, &meter, new(followup.Room)), start
	empty := meter.Bytes()
	for i := range 400_000 {
		now = now.Add(10 * time.Millisecond)
		took := time.Duration(math.Pow(10, 3+float64(i%977)/100))
		if l := m.Add(now, followup.Call{Share: m.Draw(), Late: true, Hedges: 1, Wait: took, CutShort: true}); l != nil {
			m.Followed(now, l, 2*took, true)
		}
	}
	if n := meter.Bytes(); empty < 100 || n < 50_000 || n > 180_000 {
		t.Errorf("%d bytes are counted, %d of an empty one", n, empty)
	}
	m.Release()
	if n := meter.Bytes(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestConcurrent: calls end, losers end and others read, all at once.
func TestConcurrent(t *testing.T) {
	m := followup.New(100, 0.99, 1, nil, new(followup.Room))
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 2000 {
				now := start.Add(time.Duration(i) * 100 * time.Millisecond)
				took := time.Duration(1+(i*7+g)%50) * time.Millisecond
				c := followup.Call{Share: m.Draw(), Wait: took, Late: i%5 == 0, Hedges: 1, CutShort: i%5 == 0}
				if l := m.Add(now, c); l != nil {
					m.Followed(now, l, 3*took, true)
				}
				if i%100 == 0 {
					m.Measure(now)
				}
				m.NothingToGain()
			}
		})
	}
	all.Wait()
	if g := m.Measure(start.Add(200 * time.Second)); !g.Measured {
		t.Errorf("nothing is measured: %+v", g)
	}
}

// BenchmarkUndrawn is what a call costs that is neither late nor drawn.
func BenchmarkUndrawn(b *testing.B) {
	m := followup.New(5, 0.99, 1, nil, new(followup.Room))
	m.Configure(1e-9, 0.99)
	for b.Loop() {
		m.Add(start, followup.Call{Share: m.Draw(), Wait: time.Millisecond})
	}
}

// BenchmarkLate is what a call costs that was hedged.
func BenchmarkLate(b *testing.B) {
	m := followup.New(5, 0.99, 1, nil, new(followup.Room))
	for b.Loop() {
		m.Add(start, followup.Call{Wait: time.Millisecond, Late: true, Hedges: 1, CutShort: true})
	}
}

// BenchmarkMeasure is what it costs to ask for the gain.
func BenchmarkMeasure(b *testing.B) {
	w := newWorld(1, straggler, 500)
	w.run(10 * time.Minute)
	for b.Loop() {
		w.m.Measure(w.now)
	}
}

// TestAdd_FewAtOnce: one loser of a method is followed at a time, and three of a target.
func TestAdd_FewAtOnce(t *testing.T) {
	cut := followup.Call{Share: 1, Wait: 10 * time.Millisecond, Late: true, Hedges: 1, CutShort: true}
	var room followup.Room
	var losers []*followup.Loser
	var methods []*followup.Method
	for seed := range uint64(5) {
		m := followup.New(100, 0.99, seed, nil, &room)
		l := m.Add(start, cut)
		if again := m.Add(start, cut); (l != nil) != (seed < 3) || again != nil {
			t.Errorf("method %d: %v, %v", seed, l, again)
		}
		methods, losers = append(methods, m), append(losers, l)
	}
	for range 2 { // the second time changes nothing
		methods[0].Followed(start, losers[0], time.Second, true)
	}
	if methods[3].Add(start, cut) == nil || methods[4].Add(start, cut) != nil {
		t.Error("there is room for one more")
	}
}

// TestAdd_StandsForOthers: a loser that is followed stands for those that were drawn while another one was followed. Losers are fast
// for a minute and slow for a minute, so that fewer of the slow ones can be followed.
func TestAdd_StandsForOthers(t *testing.T) {
	const fast, slow, waited = 20 * time.Millisecond, 5 * time.Second, 10 * time.Millisecond
	m, now := followup.New(100, 0.9, 1, nil, new(followup.Room)), start
	var l *followup.Loser
	var ends time.Time
	var took time.Duration
	for i := range 12_000 { // ten a second, of which one is drawn
		if now = now.Add(100 * time.Millisecond); l != nil && !now.Before(ends) {
			m.Followed(ends, l, took, true)
			l = nil
		}
		cut := followup.Call{Wait: waited, Late: true, Hedges: 1, CutShort: true}
		if i%10 == 5 {
			cut.Share = 0.1
		}
		if followed := m.Add(now, cut); followed != nil {
			if l, took = followed, fast; i/600%2 == 1 {
				took = slow
			}
			ends = now.Add(took)
		}
	}
	near(t, "seconds saved per call", m.Measure(now).Saved.Seconds(), ((slow+fast)/2 - waited).Seconds(), 0.25)
}
