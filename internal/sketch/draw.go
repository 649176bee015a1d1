package sketch

import "sync/atomic"

const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ / φ

// Draws are numbers in [0, 1) that are spread evenly, even if there are few: the multiples of the
// golden ratio, modulo 1. They are safe for concurrent use.
type Draws struct{ sum atomic.Uint64 }

func (d *Draws) Next() float64 { return unit(d.sum.Add(golden)) }

// HashUnit returns a hash of n in [0, 1). It samples numbered calls, and no pattern of traffic can
// be in step with it.
func HashUnit(n uint64) float64 { return unit(Mix(n * golden)) }

// Mix hashes n: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
// Number Generators", OOPSLA 2014).
func Mix(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

func unit(n uint64) float64 { return float64(n>>11) / (1 << 53) }
