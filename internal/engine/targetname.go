package engine

import "strings"

const maxTargetName = 1024 // bytes

// nameOf returns the name of a connection's target.
func (e *Engine) nameOf(connection string) string {
	if e.config.Load().TargetName == nil {
		return connection
	}
	if t := e.targetOf(connection); t != nil {
		return t.name
	}
	name := e.config.Load().TargetName(connection)
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	return name
}

// namesShare is the divisor for the part of the memory that the keys of Engine.connections may take: one eighth.
const namesShare = 8

// remember stores the target of a connection, so that its next call need not ask WithTargetName. e.mu must be held.
//
// The number of connections with one name is not bounded. If all of them take too much memory, all are forgotten. Those in
// use are stored again with their next call.
func (e *Engine) remember(connection string, t *target) {
	if e.config.Load().TargetName == nil || e.targetOf(connection) != nil {
		return
	}
	if e.entries.names > e.config.Load().MaxMemory/namesShare {
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

// forget undoes remember for all connections of a target. e.mu must be held.
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

// connectionTargets returns, for each name, the targets of the connections that have it.
func (e *Engine) connectionTargets() map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	named := map[string][]string{}
	e.targets.Range(func(name, t any) bool {
		if e.config.Load().TargetName == nil {
			named[name.(string)] = []string{name.(string)}
		} else {
			named[name.(string)] = t.(*target).connections
		}
		return true
	})
	return named
}
