package run

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestStalls(t *testing.T) {
	s := Stalls{watched: time.Second}
	for _, late := range []time.Duration{0, -time.Millisecond, stallFloor, 20 * time.Millisecond,
		80 * time.Millisecond, time.Millisecond} {
		s.add(late)
	}
	if s.Longest != 80*time.Millisecond || s.Share() != 0.1 {
		t.Errorf("longest %v, share %v; want 80ms, 0.1", s.Longest, s.Share())
	}
	if (Stalls{}).Share() != 0 {
		t.Error("nothing watched, and yet stalled")
	}
}

func TestWatchStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := watchStalls()
		time.Sleep(time.Second)
		if s := end(); s.watched != time.Second || s.total != 0 {
			t.Errorf("%+v where time stands still for nobody", s)
		}
	})
}
