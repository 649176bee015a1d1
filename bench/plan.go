package main

// slice is a run of consecutive calls that one arm of a comparison makes, from the first up to but without the
// end.
type slice struct{ arm, first, end int }

// alternate has each of the arms make the same calls in slices of the given size, one arm after the other, so
// that what changes on the machine meanwhile changes for all. The order turns round after every slice, so that
// none is always first.
func alternate(arms, calls, size int) []slice {
	var plan []slice
	for first, turn := 0, 0; first < calls; first, turn = first+size, turn+1 {
		for i := range arms {
			if turn%2 == 1 {
				i = arms - 1 - i
			}
			plan = append(plan, slice{i, first, min(first+size, calls)})
		}
	}
	return plan
}
