package workload

import (
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// In every stallEvery of a run, one of stallBackends stalls for stallFor, in turn.
const (
	stallBackends = 3
	stallEvery    = 5 * time.Second
	stallFrom     = time.Second
	stallFor      = time.Second
)

func planStalls(m Moment) testserver.Plan {
	return testserver.Plan{Delay: withStalls(m.Backend, m.at, m.Draw(m.distribution))}
}

// withStalls returns the latency of an attempt that reaches a backend at the given time of the run
// and needs work there. A stalled backend does no work.
func withStalls(backend int, at, work time.Duration) time.Duration {
	end := at + work
	for n := int(at / stallEvery); ; n++ {
		from := time.Duration(n)*stallEvery + stallFrom
		if from >= end {
			return end - at
		}
		if to := from + stallFor; n%stallBackends == backend && to > at {
			end += to - max(from, at)
		}
	}
}

// byArrival numbers the backends of a target in the order in which attempts first reach them. A
// round robin starts at a backend chosen at random; by these numbers it always starts at the first.
type byArrival struct {
	mu      sync.Mutex
	numbers map[int]int
}

func (b *byArrival) number(backend int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.numbers[backend]
	if !ok {
		n = len(b.numbers)
		b.numbers[backend] = n
	}
	return n
}
