package trigger_test

import (
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// Regardless of how Configure interleaves with the ends of calls, once the next call has ended the
// estimate is made under the new configuration.
func TestConfigure_WhileCallsEnd(t *testing.T) {
	old, other := *config(), *config()
	old.Auto, other.Auto, other.Quantile = false, false, 0.5
	l := started(&old)
	l.Run(func(choose func()) { choose() })
	at := time.Now()
	for range 1000 {
		l.PrimaryEnded(at, 10*ms, true)
	}
	for i := range longtest.Size(4_000, 20_000) {
		c := &old
		if i%2 == 0 {
			c = &other
		}
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() {
			<-start
			l.Configure(c)
		})
		close(start)
		for range 3 {
			at = at.Add(ms)
			l.PrimaryEnded(at, 10*ms, true)
		}
		both.Wait()
		at = at.Add(ms)
		l.PrimaryEnded(at, 10*ms, true)
		if !l.Estimate().MadeUnder(c) {
			t.Fatalf("round %d: the estimate was made under the configuration before", i)
		}
	}
}

// Configure with an equal configuration recomputes nothing.
func TestConfigure_WithTheSame(t *testing.T) {
	l, at := manual(t)
	for range 1000 {
		at = at.Add(ms)
		l.PrimaryEnded(at, 10*ms, true)
	}
	before := l.Estimate()
	l.Configure(config())
	l.PrimaryEnded(at, 10*ms, true)
	if l.Estimate() != before {
		t.Error("an estimate was computed")
	}
}
