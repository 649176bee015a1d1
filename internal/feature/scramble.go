package feature

// Scramble makes a number that looks like chance of each number: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014). Of a count of calls it draws some, and no pattern of traffic can be in
// step with it.
func Scramble(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// Chance is Scramble as a number from 0 to 1, 1 excluded.
func Chance(n uint64) float64 { return float64(Scramble(n)>>11) / (1 << 53) }
