package sketch

import (
	"time"
	"unsafe"
)

// Fading counts latencies with weights that are made smaller as they grow old. The zero Fading is empty. It must not be used
// concurrently.
type Fading struct {
	pages [pages]*[pageSize]float32
	total float64
}

// Add counts a latency with the weight 1.
func (f *Fading) Add(d time.Duration) {
	b := bucketOf(d)
	p := &f.pages[b/pageSize]
	if *p == nil {
		*p = new([pageSize]float32)
	}
	(*p)[b%pageSize]++
	f.total++
}

// Fade multiplies all weights by a factor from 0 to 1.
func (f *Fading) Fade(factor float64) {
	for _, p := range f.pages {
		if p == nil {
			continue
		}
		for i := range p {
			p[i] *= float32(factor)
		}
	}
	f.total *= factor
}

// Total is the sum of all weights.
func (f *Fading) Total() float64 { return f.total }

// Bytes is the memory that it takes: 150 bytes when empty, and 256 more for each range of 64 buckets that has counted.
func (f *Fading) Bytes() int64 {
	bytes := int64(unsafe.Sizeof(*f))
	for _, p := range f.pages {
		if p != nil {
			bytes += int64(unsafe.Sizeof(*p))
		}
	}
	return bytes
}

// Survival returns the survival function, or nil if nothing was counted.
func (f *Fading) Survival() *Survival {
	sum := 0.0
	for _, p := range f.pages {
		if p != nil {
			for _, w := range p {
				sum += float64(w)
			}
		}
	}
	if sum <= 0 {
		return nil
	}
	s := &Survival{}
	left := sum
	for i := range s.beyond {
		if p := f.pages[i/pageSize]; p != nil && p[i%pageSize] > 0 {
			left -= float64(p[i%pageSize])
			s.last = i
		}
		s.beyond[i] = max(left/sum, 0)
	}
	for i := s.last; i < len(s.beyond); i++ {
		s.beyond[i] = 0 // rounding leaves nothing
	}
	return s
}
