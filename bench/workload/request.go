package workload

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// ofRequest returns a source with the same draws for every attempt of a request.
func (m Moment) ofRequest() *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], m.seed)
	binary.LittleEndian.PutUint64(key[8:], m.ID)
	return rand.New(rand.NewChaCha8(key))
}

// slowRequest is the distribution of the requests of the correlated workload that are slow
// everywhere.
var slowRequest = testserver.LogNormal(60*time.Millisecond, 10*time.Millisecond)

// planCorrelated lets one request in ten be slow in every attempt.
func planCorrelated(m Moment) testserver.Plan {
	if m.ofRequest().Float64() < 0.10 {
		return testserver.Plan{Delay: m.Draw(slowRequest)}
	}
	return testserver.Plan{Delay: m.Draw(m.distribution)}
}

// more adds an extra time to a share of attempts.
func more(share float64, extra time.Duration) testserver.Distribution {
	return testserver.Mixture(testserver.Part{Weight: 1 - share, Distribution: testserver.Constant(0)},
		testserver.Part{Weight: share, Distribution: testserver.Constant(extra)})
}

var (
	moreOfSizes = more(0.02, 200*time.Millisecond)
	moreOfHeavy = more(0.02, 100*time.Millisecond)
)

// planSizes makes the request's size account for most of its attempts' latency: the median is 5 ms,
// sigma 1. The distribution is each attempt's own addition.
func planSizes(m Moment) testserver.Plan {
	size := time.Duration(5 * float64(time.Millisecond) * math.Exp(m.ofRequest().NormFloat64()))
	return testserver.Plan{Delay: size + m.Draw(m.distribution) + m.Draw(moreOfSizes)}
}

// planHeavy lets one request in ten take eight times as long in every attempt.
func planHeavy(m Moment) testserver.Plan {
	delay := m.Draw(m.distribution)
	if m.ofRequest().Float64() < 0.10 {
		delay *= 8
	}
	return testserver.Plan{Delay: delay + m.Draw(moreOfHeavy)}
}
