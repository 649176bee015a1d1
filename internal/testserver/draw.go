package testserver

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// source draws latencies for the attempts of a cluster. It may be used concurrently.
type source struct {
	seed uint64
	mu   sync.Mutex
	rng  *rand.Rand
}

func newSource(seed uint64) *source {
	return &source{seed: seed, rng: rand.New(rand.NewPCG(seed, mix(seed)))}
}

func (s *source) draw(distribution Distribution) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return distribution.Draw(s.rng)
}

// forAttempt returns a source that depends on the seed, the request and the
// number of the attempt, and on nothing that happened before.
func (s *source) forAttempt(id uint64, number int) *source {
	return &source{rng: rand.New(rand.NewPCG(mix(s.seed^mix(id)), mix(uint64(number)+1)))}
}

// mix sends neighbouring seeds far apart, which PCG, started from neighbouring states, does not do
// for its first draws.
func mix(x uint64) uint64 { return sketch.Mix(x + 0x9e3779b97f4a7c15) }
