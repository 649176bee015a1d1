package main

import "math/rand/v2"

// shuffled is the order in which arms take their turn in each of a number of rounds, at random.
func shuffled(arms, rounds int, seed uint64) [][]int {
	rng := rand.New(rand.NewPCG(seed, 0))
	plan := make([][]int, rounds)
	for i := range plan {
		plan[i] = rng.Perm(arms)
	}
	return plan
}
