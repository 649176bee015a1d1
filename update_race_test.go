package hedge_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
)

// While 64 goroutines call, one updates the scheduler again and again. Each call's attempts are those of one configuration that was in force when
// it began, and hedges stay within the larger budget of the two.
func TestRule20_UpdateUnderLoad(t *testing.T) {
	all := hedge.WithAllMethods()
	configs := [][]hedge.Option{
		{all, hedge.WithTrigger(hedge.Fixed(time.Millisecond)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100)},
		{all, hedge.WithTrigger(hedge.Fixed(10 * time.Millisecond)), hedge.WithMaxHedges(3), hedge.WithBudgetPercent(300),
			hedge.WithMethodOptions("/s/Short", hedge.WithTrigger(hedge.Fixed(7*time.Millisecond)), hedge.WithMaxHedges(2))},
	}
	schedules := map[string][][]time.Duration{
		"/s/Long":  {{0, 1 * ms}, {0, 10 * ms, 20 * ms, 30 * ms}},
		"/s/Short": {{0, 1 * ms}, {0, 7 * ms, 14 * ms}},
	}
	rounds := longtest.Size(20, 500)
	synctest.Test(t, func(t *testing.T) {
		s, err := hedge.New(configs[0]...)
		if err != nil {
			t.Fatal(err)
		}
		var done atomic.Bool
		var updater, callers sync.WaitGroup
		updater.Go(func() {
			for i := 1; !done.Load(); i++ {
				if err := s.Update(configs[i%2]...); err != nil {
					t.Error(err)
				}
				time.Sleep(900 * time.Microsecond)
			}
		})
		var hedges atomic.Int64
		for caller := range 64 {
			method := []string{"/s/Long", "/s/Short"}[caller%2]
			callers.Go(func() {
				time.Sleep(time.Duration(caller) * 37 * time.Microsecond)
				for range rounds {
					sent := oneCall(t, s, method)
					hedges.Add(int64(len(sent) - 1))
					if !slices.ContainsFunc(schedules[method], func(whole []time.Duration) bool { return isPart(sent, whole) }) {
						t.Errorf("%s: attempts at %v, which is no configuration's schedule", method, sent)
					}
				}
			})
		}
		callers.Wait()
		done.Store(true)
		updater.Wait()
		stats := s.Stats()
		if stats.Hedges != hedges.Load() || stats.Calls != int64(64*rounds) {
			t.Errorf("%d calls and %d hedges counted, %d and %d made", stats.Calls, stats.Hedges, 64*rounds, hedges.Load())
		}
		if most := 3*stats.Calls + 1; stats.Hedges > most {
			t.Errorf("%d hedges, want at most %d", stats.Hedges, most)
		}
	})
}

// isPart reports whether attempts were sent as a schedule says. The budget may have held back some.
func isPart(sent, schedule []time.Duration) bool {
	for _, at := range sent {
		if !slices.Contains(schedule, at) {
			return false
		}
	}
	return true
}

// oneCall makes a call that takes 50 ms and returns the ages at which its attempts were sent.
func oneCall(t *testing.T, s *hedge.Scheduler, method string) []time.Duration {
	var mu sync.Mutex
	var sent []time.Duration
	start := time.Now()
	_, err := hedge.Do(context.Background(), s, "t", method, func(ctx context.Context) (int, error) {
		mu.Lock()
		sent = append(sent, time.Since(start))
		mu.Unlock()
		select {
		case <-time.After(50 * ms):
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	if err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(sent)
}
