package registry

import "strings"

const maxTargetName = 1024 // bytes

// nameOf returns the name of a connection's target.
func (r *Registry) nameOf(connection string) string {
	if r.config.Load().TargetName == nil {
		return connection
	}
	if t := r.targetOf(connection); t != nil {
		return t.Name
	}
	name := r.config.Load().TargetName(connection)
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	return name
}

// namesShare is the divisor for the part of the memory that the keys of Registry.connections may take: one eighth.
const namesShare = 8

// remember stores the target of a connection, so that its next call need not ask WithTargetName. r.mu must be held.
//
// The number of connections with one name is not bounded. If all of them take too much memory, all are forgotten. Those in
// use are stored again with their next call.
func (r *Registry) remember(connection string, t *Target) {
	if r.config.Load().TargetName == nil || r.targetOf(connection) != nil {
		return
	}
	if r.entries.names > r.config.Load().MaxMemory/namesShare {
		r.targets.Range(func(_, t any) bool {
			r.forget(t.(*Target))
			return true
		})
	}
	connection = strings.Clone(connection)
	t.connections = append(t.connections, connection)
	r.connections.Store(connection, t)
	r.countName(connection, 1)
}

// forget undoes remember for all connections of a target. r.mu must be held.
func (r *Registry) forget(t *Target) {
	for _, connection := range t.connections {
		r.connections.Delete(connection)
		r.countName(connection, -1)
	}
	t.connections = nil
}

func (r *Registry) countName(connection string, sign int64) {
	bytes := sign * (allocated(connection) + mapShare)
	r.entries.names += bytes
	r.memory.Add(bytes)
}

// connectionTargets returns, for each name, the targets of the connections that have it.
func (r *Registry) connectionTargets() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	named := map[string][]string{}
	r.targets.Range(func(name, t any) bool {
		if r.config.Load().TargetName == nil {
			named[name.(string)] = []string{name.(string)}
		} else {
			named[name.(string)] = t.(*Target).connections
		}
		return true
	})
	return named
}
