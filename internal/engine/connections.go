package engine

import (
	"slices"
	"time"
)

// connections are the connections of a target that attempts have used last, by the remote address. A connection is known by
// its local address.
type connections map[string]*connectionsTo

// connectionsTo are the connections to one address.
type connectionsTo struct {
	locals []string  // the last ones, mostLocals at most
	since  time.Time // when the last one was new
}

const mostRemotes, mostLocals = 16, 8

// replaced adds a connection, and reports whether it is a new one to a known address less than mostExposed after the one
// before.
func (c *connections) replaced(local, remote string, now time.Time) bool {
	to := (*c)[remote]
	switch {
	case to == nil && len(*c) < mostRemotes:
		if *c == nil {
			*c = connections{}
		}
		(*c)[remote] = &connectionsTo{locals: []string{local}, since: now}
		return false
	case to == nil, slices.Contains(to.locals, local):
		return false
	}
	soon := now.Sub(to.since) < mostExposed
	to.since = now
	if len(to.locals) == mostLocals {
		to.locals = slices.Delete(to.locals, 0, 1)
	}
	to.locals = append(to.locals, local)
	return soon
}
