package feature

// Chance returns a number from 0 to 1, 1 excluded, that looks like chance: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014). It draws some of a count of calls, and no pattern of traffic can be in
// step with it.
func Chance(n uint64) float64 {
	n *= 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return float64((n^n>>31)>>11) / (1 << 53)
}
