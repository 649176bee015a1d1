package budget_test

import (
	"fmt"
	"time"

	"github.com/grpchedge/hedge/budget"
)

// Times are arguments, here of a simulated clock: a thousand calls in a second pay for a hundred
// hedges.
func Example() {
	b := budget.New(10) // 10 hedges per 100 calls

	now := time.Now()
	for range 1000 {
		b.Earn(now)
		now = now.Add(time.Millisecond)
	}

	hedges := 0
	for b.Pay(now, true) {
		hedges++
	}
	fmt.Println(hedges, "hedges")
	// Output: 100 hedges
}

// The last tokens of a burst are reserved for urgent hedges.
func ExampleBucket_Pay() {
	b := budget.New(10)

	now := time.Now()
	for range 410 {
		b.Earn(now)
	}

	first, second := 0, 0
	for b.Pay(now, false) {
		first++
	}
	for b.Pay(now, true) {
		second++
	}
	fmt.Println(first, "first hedges, then", second, "second ones")
	// Output: 36 first hedges, then 5 second ones
}

// Savings pay for a cluster of slow calls while hedges win.
func ExampleBucket_Hedged() {
	b, now := budget.New(10), time.Now()
	for range 1000 { // calls in ten seconds, none of them slow
		b.Earn(now)
		now = now.Add(10 * time.Millisecond)
	}
	paid := 0
	for range 80 { // a backend stalls
		if b.Pay(now, true) {
			b.Hedged(true) // the hedge won
			paid++
		}
	}
	fmt.Println(paid, "hedges of 80, and", b.Tokens(now), "tokens are left")
	// Output: 80 hedges of 80, and 7.5 tokens are left
}
