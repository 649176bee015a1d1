package run

import (
	"testing"
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
