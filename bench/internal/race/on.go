//go:build race

// Package race tells tests whether the race detector is on. They leave the peer out under it, because the peer decodes the
// replies of all attempts of a call into one message.
package race

// Enabled says whether the race detector is on.
const Enabled = true
