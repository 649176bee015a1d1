package cost

import (
	"reflect"
	"slices"
	"testing"
)

func TestShuffled(t *testing.T) {
	const arms, rounds = 4, 4000
	plan := shuffled(arms, rounds, 7)
	if !reflect.DeepEqual(plan, shuffled(arms, rounds, 7)) {
		t.Error("the same seed gives two orders")
	}
	var at [arms][arms]int // by arm and place
	for _, order := range plan {
		seen := slices.Sorted(slices.Values(order))
		if !slices.Equal(seen, []int{0, 1, 2, 3}) {
			t.Fatalf("round %v is not of every arm once", order)
		}
		for place, arm := range order {
			at[arm][place]++
		}
	}
	for arm := range at {
		for place, n := range at[arm] {
			if n < rounds/arms*9/10 || n > rounds/arms*11/10 {
				t.Errorf("arm %d is at place %d in %d of %d rounds, want about a quarter", arm, place, n, rounds)
			}
		}
	}
}
