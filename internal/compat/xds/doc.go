// Package xds holds tests of this library below a real xds:/// channel, with a management server of its own. It is a module of
// its own, so that what it needs reaches no user.
package xds
