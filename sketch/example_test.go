package sketch_test

import (
	"fmt"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

func Example() {
	w := sketch.New(30 * time.Second)

	now := time.Now()
	for i := range 100 {
		w.Observe(now, time.Duration(i+1)*time.Millisecond)
		now = now.Add(10 * time.Millisecond)
	}

	d := w.Snapshot(now)
	p90, ok := d.Quantile(0.90)
	fmt.Println(p90.Round(5*time.Millisecond), ok)
	observed, _ := w.Snapshot(now.Add(time.Minute)).Count()
	fmt.Println(observed, "a minute later")
	// Output:
	// 90ms true
	// 0 a minute later
}

// Three of ten calls were cut short at 20 ms. How slow they were is estimated from the others.
func ExampleWindow_ObserveLonger() {
	w, now := sketch.New(30*time.Second), time.Now()
	for range 4 {
		w.Observe(now, 10*time.Millisecond)
	}
	for range 3 {
		w.ObserveLonger(now, 20*time.Millisecond)
	}
	for range 3 {
		w.Observe(now, 40*time.Millisecond)
	}

	p50, _ := w.Snapshot(now).Quantile(0.5)
	fmt.Println(p50.Round(time.Millisecond))
	// Output: 40ms
}

// The sketches of two processes are merged into one distribution.
func ExampleFromDDSketch() {
	now := time.Now()
	one, other := sketch.New(30*time.Second), sketch.New(30*time.Second)
	one.Observe(now, 10*time.Millisecond)
	other.Observe(now, 50*time.Millisecond)

	merged := one.Snapshot(now).DDSketch()
	if err := merged.MergeWith(other.Snapshot(now).DDSketch()); err != nil {
		fmt.Println(err)
	}
	slowest, _ := sketch.FromDDSketch(merged).Quantile(0.9)
	fmt.Println(slowest.Round(time.Millisecond))
	// Output: 50ms
}
