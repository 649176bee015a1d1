package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// A panic in the choice of the trigger, on a goroutine of its own or on a caller's, leaves the last
// delay in force.
func TestTriggerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		second := func() {
			for i := range 400 {
				hedgetest.Call(t, s, target, method, ms+time.Duration(i%200)*ms/100)
			}
			synctest.Wait()
		}
		second()
		before := s.Methods()[0]
		if before.Choice == (stats.Choice{}) || before.TriggerPanics != 0 {
			t.Fatalf("%+v, want a choice, and no panic yet", before)
		}
		undo := registry.MakeTriggerPanic((*registry.Registry)(s))
		for range 3 {
			second()
		}
		broken := s.Methods()[0]
		if broken.TriggerPanics < 2 || broken.Choice != before.Choice || s.Stats().TriggerPanics != broken.TriggerPanics {
			t.Errorf("%+v\nafter %+v", broken, before)
		}
		undo()
		for range 3 {
			second()
		}
		if after := s.Methods()[0]; after.TriggerPanics != broken.TriggerPanics || after.Choice == broken.Choice {
			t.Errorf("no choice was made since: %+v", after)
		}
	})
}
