// Package messages tests hedged calls with messages of every kind of codec, beside the same calls
// without hedging. It is a module of its own, so that its dependencies reach no user.
package messages
