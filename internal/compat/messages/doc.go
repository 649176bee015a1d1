// Package messages tests hedged calls with messages of every kind that a codec may have, beside the same calls without
// hedging. It is a module of its own, so that the protobuf libraries it needs reach nobody.
package messages
