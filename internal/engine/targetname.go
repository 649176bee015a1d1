package engine

import "strings"

const maxTargetName = 1024 // bytes

// nameOf returns the name of a connection's target.
func (e *Engine) nameOf(connection string) string {
	if e.config.TargetName == nil {
		return connection
	}
	if t := e.of(connection); t != nil {
		return t.name
	}
	name := e.config.TargetName(connection)
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	return name
}

// namesShare is which part of the memory may go to what the names stand for.
const namesShare = 8

// remember has calls of a connection find its target without being asked for its name. e.mu is held.
//
// A name may stand for any number of connections, one after the other. When all of them together take too much, all are
// forgotten, and those in use are remembered again with their next call.
func (e *Engine) remember(connection string, t *target) {
	if e.config.TargetName == nil || e.of(connection) != nil {
		return
	}
	if e.entries.names > e.config.MaxMemory/namesShare {
		e.targets.Range(func(_, t any) bool {
			e.forget(t.(*target))
			return true
		})
	}
	connection = strings.Clone(connection)
	t.connections = append(t.connections, connection)
	e.connections.Store(connection, t)
	e.countName(connection, 1)
}

// forget undoes remember for all connections of a target. e.mu is held.
func (e *Engine) forget(t *target) {
	for _, connection := range t.connections {
		e.connections.Delete(connection)
		e.countName(connection, -1)
	}
	t.connections = nil
}

func (e *Engine) countName(connection string, sign int64) {
	bytes := sign * (allocated(connection) + mapShare)
	e.entries.names += bytes
	e.memory.Add(bytes)
}

// connectionTargets returns the targets of the connections that each name stands for.
func (e *Engine) connectionTargets() map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	named := map[string][]string{}
	e.targets.Range(func(name, t any) bool {
		if e.config.TargetName == nil {
			named[name.(string)] = []string{name.(string)}
		} else {
			named[name.(string)] = t.(*target).connections
		}
		return true
	})
	return named
}
