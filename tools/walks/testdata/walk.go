// Package walk keeps the order in which functions were entered.
package walk

import (
	"fmt"
	"sync"
)

var (
	mu        sync.Mutex
	recording bool
	entered   [][2]string
)

// Enter is the first statement of every function.
func Enter(file, function string) {
	mu.Lock()
	defer mu.Unlock()
	if recording {
		entered = append(entered, [2]string{file, function})
	}
}

// Begin begins a walk.
func Begin() {
	mu.Lock()
	defer mu.Unlock()
	recording, entered = true, nil
}

// End ends the walk, and prints it.
func End(scene string) {
	mu.Lock()
	defer mu.Unlock()
	recording = false
	for _, e := range entered {
		fmt.Printf("walk\t%s\t%s\t%s\n", scene, e[0], e[1])
	}
}
