// Package xds holds tests of this library below a real xds:/// channel, with its own management
// server. It is a module of its own, so that its dependencies reach no user.
package xds
