package registry

import (
	"strings"

	"github.com/grpchedge/hedge/stats"
)

// NoteNames records the names of the method and its target for metrics. conn is nil for hedge.Do.
// static reports whether the call has the option grpc.StaticMethod.
func (m *Method) NoteNames(conn any, static bool) {
	static = static || conn == nil
	known := m.names.Load()
	if known.Method != "" && (!static || known.Method != "other") {
		return
	}
	names := stats.Names{Target: m.Target.Name, Method: "other"}
	if c, ok := conn.(interface{ CanonicalTarget() string }); ok && m.Target.registry.config.Load().TargetName == nil {
		names.Target = c.CanonicalTarget()
	}
	if static {
		names.Method = strings.ToValidUTF8(strings.TrimLeft(m.Name, "/"), "\ufffd")
	}
	names.Target = strings.ToValidUTF8(names.Target, "\ufffd")
	m.names.CompareAndSwap(known, &names)
}
