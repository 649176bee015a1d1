package cost

import "math/rand/v2"

// shuffled is the random order in which arms have their turns in each of several rounds.
func shuffled(arms, rounds int, seed uint64) [][]int {
	rng := rand.New(rand.NewPCG(seed, 0))
	plan := make([][]int, rounds)
	for i := range plan {
		plan[i] = rng.Perm(arms)
	}
	return plan
}
