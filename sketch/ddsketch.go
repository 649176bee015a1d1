package sketch

import (
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// DDSketch returns the distribution as a sketch of DataDog's library, which can merge it with others, encode it and send it.
// Its values are nanoseconds, within 1%, and its counts need not be whole: a call that was cut short counts among those that
// lasted longer, as [Distribution.Counts] says. The merged sketches of two windows without such calls are the sketch of one
// window that recorded both. On 32-bit machines that library computes no values with this mapping.
func (d *Distribution) DDSketch() *ddsketch.DDSketch {
	bins := store.NewSparseStore()
	for _, c := range d.Counts() {
		bins.AddWithCount(int(c.Bucket)+offset, float64(c.Calls))
	}
	return ddsketch.NewDDSketch(index, bins, store.NewSparseStore())
}

// FromDDSketch returns the distribution of a sketch whose values are nanoseconds, with any mapping. Its error and the 1% of
// this package's buckets add up. Values outside of 1 µs to 10 min count as the nearer end.
func FromDDSketch(s *ddsketch.DDSketch) *Distribution {
	var t tally
	s.ForEach(func(value, count float64) (stop bool) {
		t.answered[Bucket(time.Duration(min(max(value, 0), float64(longest))))] += count
		return false
	})
	return t.distribution()
}
