package run

import (
	"slices"
	"testing"
)

func TestAlternate(t *testing.T) {
	for _, tc := range []struct{ arms, calls, size int }{
		{2, 1, 50}, {2, 100, 50}, {2, 101, 50}, {3, 7, 2}, {1, 10, 3},
	} {
		plan := alternate(tc.arms, tc.calls, tc.size)
		next := make([]int, tc.arms) // by arm: the call it is to make next
		for i, s := range plan {
			if s.first != next[s.arm] || s.end <= s.first || s.end-s.first > tc.size {
				t.Fatalf("%+v: slice %d is %+v, but the arm is at call %d", tc, i, s, next[s.arm])
			}
			next[s.arm] = s.end
			if turn := i / tc.arms; s.first != turn*tc.size {
				t.Errorf("%+v: slice %d is %+v, not of turn %d: arms are not abreast", tc, i, s, turn)
			}
		}
		for arm, n := range next {
			if n != tc.calls {
				t.Errorf("%+v: arm %d makes %d calls", tc, arm, n)
			}
		}
	}

	var order []int
	for _, s := range alternate(2, 40, 10) {
		order = append(order, s.arm)
	}
	if want := []int{0, 1, 1, 0, 0, 1, 1, 0}; !slices.Equal(order, want) {
		t.Errorf("two arms take turns in the order %v, want %v", order, want)
	}
}
