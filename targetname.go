package hedge

import (
	"errors"
	"strings"
)

// WithTargetName keeps what is known of a connection's target under the name that the function gives it: budget, latencies
// and [TargetStats]. Targets of one name share all of it. It is for clients that make up a target for each connection, as
// etcd's does with a pointer in it, so that nothing that one connection learned is found again by the next.
//
// The function is called when a call meets a target that is new to the scheduler, and now and then again for one that is
// not; never for every call. It must give the same name each time, and may be called concurrently. A panic in it is that of
// the call. Of a name longer than 1,024 bytes the beginning counts. The function must not be nil. By default a target is
// named by itself.
//
// The policy of package balancer goes by the connection's own target, whatever its name.
func WithTargetName(name func(target string) string) Option {
	return func(c *config) error {
		if name == nil {
			return errors.New("hedge: WithTargetName(nil): there must be a function")
		}
		c.targetName = name
		return nil
	}
}

const maxTargetName = 1024 // bytes

// nameOf returns the name of a connection's target.
func (s *Scheduler) nameOf(connection string) string {
	if s.config.targetName == nil {
		return connection
	}
	if t := s.of(connection); t != nil {
		return t.name
	}
	name := s.config.targetName(connection)
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	return name
}

// namesShare is which part of the memory may go to what the names stand for.
const namesShare = 8

// remember has calls of a connection find its target without being asked for its name. s.mu is held.
//
// A name may stand for any number of connections, one after the other. When all of them together take too much, all are
// forgotten, and those in use are remembered again with their next call.
func (s *Scheduler) remember(connection string, t *target) {
	if s.config.targetName == nil || s.of(connection) != nil {
		return
	}
	if s.entries.names > s.config.maxMemory/namesShare {
		s.targets.Range(func(_, t any) bool {
			s.forget(t.(*target))
			return true
		})
	}
	connection = strings.Clone(connection)
	t.connections = append(t.connections, connection)
	s.connections.Store(connection, t)
	s.countName(connection, 1)
}

// forget undoes remember for all connections of a target. s.mu is held.
func (s *Scheduler) forget(t *target) {
	for _, connection := range t.connections {
		s.connections.Delete(connection)
		s.countName(connection, -1)
	}
	t.connections = nil
}

func (s *Scheduler) countName(connection string, sign int64) {
	bytes := sign * (allocated(connection) + mapShare)
	s.entries.names += bytes
	s.memory.Add(bytes)
}

// connectionTargets returns the targets of the connections that each name stands for.
func (s *Scheduler) connectionTargets() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := map[string][]string{}
	s.targets.Range(func(name, t any) bool {
		if s.config.targetName == nil {
			named[name.(string)] = []string{name.(string)}
		} else {
			named[name.(string)] = t.(*target).connections
		}
		return true
	})
	return named
}
