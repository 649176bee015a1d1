package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule16_ANewNameTakesConstantTime: a call of a new name, where there is no room for more, takes
// no longer with many methods. A round of each is compared with the next, so that a busy machine
// makes both slower.
func TestRule16_ANewNameTakesConstantTime(t *testing.T) {
	longtest.Computation(t)
	sizes := [2]int{500, 20_000}
	var schedulers [2]*hedge.Scheduler
	for i, methods := range sizes {
		schedulers[i] = hedgetest.All(t, hedge.WithMaxMethods(methods))
		for n := range methods {
			booked(schedulers[i], target, fmt.Sprint("/old.Svc/", n), ms)
			booked(schedulers[i], target, fmt.Sprint("/old.Svc/", n), ms)
		}
	}
	least := [2]time.Duration{time.Hour, time.Hour}
	for round := range 50 {
		for i, s := range schedulers {
			began := time.Now()
			for n := range 20 {
				booked(s, target, fmt.Sprint("/new.Svc/", 20*round+n), ms)
			}
			least[i] = min(least[i], time.Since(began))
		}
	}
	t.Logf("%d new names take %v among %d methods, %v among %d", 20, least[0], sizes[0], least[1], sizes[1])
	if least[1] > 5*least[0] {
		t.Errorf("new names take %v among %d methods, and %v among %d", least[0], sizes[0], least[1], sizes[1])
	}
}
