//go:build !unix

package cost

import "time"

var began = time.Now()

// processorTime returns the elapsed time: this platform does not report a process's processor time.
func processorTime() time.Duration { return time.Since(began) }
