//go:build !linux

package busy

import "time"

// hold computes for d.
func hold(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); {
	}
}
