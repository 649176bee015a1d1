//go:build unix

package cost

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is the processor time that this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no error for these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
