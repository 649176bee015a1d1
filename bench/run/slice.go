package run

// slice is consecutive calls that one arm of a comparison makes: from first up to end, end
// excluded.
type slice struct{ arm, first, end int }

// alternate lets each arm make the same calls in slices of the given size, one arm after the other,
// so that a change on the machine affects all arms. The order reverses after every slice, so that
// no arm is always first.
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
