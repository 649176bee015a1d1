package stats

import "time"

// SilentBackend is a backend that has fallen silent on some of its connections: see package balancer.
type SilentBackend struct {
	// Address is that of the backend, as the resolver gave it.
	Address string
	// Connections is the number of its connections that are silent. Each connection of a pool counts.
	Connections int
	// Since is when the first of the calls that wait there was late.
	Since time.Time
}
