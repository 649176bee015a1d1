//go:build race

package main

// raceDetector says that the race detector watches, which the peer does not stand: it decodes the replies of all
// attempts of a call into one message.
const raceDetector = true
