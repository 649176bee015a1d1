package guard_test

import (
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/stats"
)

const second = time.Second

// world is a client of one target in virtual time that makes one call after the other.
type world struct {
	now     time.Time
	arrival *rand.Rand // separate, so that calls do not depend on hedges
	random  *rand.Rand
	target  guard.Shared
	methods []*method
	calls   float64
	refuses func(w *world, m *method, attempt int) bool // with RESOURCE_EXHAUSTED; nil: nothing does
	large   float64                                     // the share of calls that every server refuses for their size

	due, sent, failed, made int // hedges and calls, since pass began
}

type method struct {
	guard.Guard
	rate   func(at time.Duration) float64 // calls a second
	wanted float64                        // due hedges a call
	calls  float64
}

var start = time.Unix(1_000_000, 0)

func always(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// newWorld returns a world with one method per rate. One call in ten has a due hedge.
func newWorld(seed uint64, rates ...float64) *world {
	w := &world{now: start, arrival: rand.New(rand.NewPCG(seed, 1)), random: rand.New(rand.NewPCG(seed, 2))}
	for _, rate := range rates {
		w.add(always(rate), 0.1)
	}
	return w
}

func (w *world) add(rate func(time.Duration) float64, wanted float64) *method {
	m := &method{rate: rate, wanted: wanted}
	m.Target = &w.target
	w.methods = append(w.methods, m)
	return m
}

func (w *world) age() time.Duration { return w.now.Sub(start) }

func (w *world) traffic(m *method) guard.Traffic {
	return guard.Traffic{Method: m.calls, Target: w.calls}
}

// pass advances the time and returns the share of due hedges that were sent, 1 if none was due.
func (w *world) pass(d time.Duration) float64 {
	w.due, w.sent, w.failed, w.made = 0, 0, 0, 0
	for end := w.now.Add(d); w.now.Before(end); {
		most := 0.0
		for _, m := range w.methods {
			most += m.rate(w.age())
		}
		if most == 0 {
			w.now = w.now.Add(second)
			continue
		}
		w.now = w.now.Add(time.Duration(w.arrival.ExpFloat64() / most * float64(second)))
		at := w.arrival.Float64() * most
		for _, m := range w.methods {
			if at -= m.rate(w.age()); at < 0 {
				w.call(m)
				break
			}
		}
	}
	if w.due == 0 {
		return 1
	}
	return float64(w.sent) / float64(w.due)
}

func (w *world) state(method int) stats.Guard {
	m := w.methods[method]
	return m.State(w.now, w.traffic(m))
}

// call makes one call. A primary that is refused ends at once. One call in ten is slow, and has a
// hedge.
func (w *world) call(m *method) {
	w.calls++
	w.made++
	m.calls++
	large := w.random.Float64() < w.large
	primary := !large && w.refuses != nil && w.refuses(w, m, 0)
	hedged := w.random.Float64() < m.wanted && !primary && w.hedge(m)
	hedge := hedged && !large && w.refuses != nil && w.refuses(w, m, 1)
	if large || primary || hedge {
		m.Exhausted(w.now, w.traffic(m), !large && !primary)
	}
	if large || primary {
		w.failed++
	}
}

// hedge sends a hedge if the guard lets it pass.
func (w *world) hedge(m *method) bool {
	w.due++
	if !m.Admit(w.now, w.traffic(m), new(guard.Ticket)) {
		return false
	}
	w.sent++
	m.Sent(w.now)
	return true
}
