// Package draw draws some of many.
package draw

import "sync/atomic"

const golden = 0x9e3779b97f4a7c15 // 2⁶⁴ / φ

// Even draws numbers from 0 to 1, 1 excluded, that are spread evenly, however few: the multiples of the golden ratio, modulo 1. So
// what is drawn stays close to its share, and a simulation does the same each time. It may be used concurrently.
type Even struct{ sum atomic.Uint64 }

func (e *Even) Next() float64 { return unit(e.sum.Add(golden)) }

// Chance returns a number from 0 to 1, 1 excluded, that looks like chance. It draws some of a count of calls, and no pattern of traffic
// can be in step with it.
func Chance(n uint64) float64 { return unit(Mix(n * golden)) }

// Mix sends neighbouring numbers far apart: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014).
func Mix(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

func unit(n uint64) float64 { return float64(n>>11) / (1 << 53) }
