//go:build !unix

package cost

import "time"

var began = time.Now()

// processorTime is the time that has passed: what a process has used of the processor is not known here.
func processorTime() time.Duration { return time.Since(began) }
