package hedgeotel

import (
	"net"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/resolver"
)

// names bounds the attributes that metrics have, and keeps those of the first that were asked for, so that recording makes none.
type names struct {
	most   int
	create func(method) *labels

	mu    sync.RWMutex
	known map[method]*labels
}

// of returns the attributes of a method, or with an empty name those of a target; others if there are too many. Each call asks, so
// a known key takes no exclusive lock.
func (n *names) of(target, name string) *labels {
	key := method{target, name}
	n.mu.RLock()
	l, ok := n.known[key]
	n.mu.RUnlock()
	if ok {
		return l
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l, ok := n.known[key]; ok {
		return l
	}
	if len(n.known) >= n.most {
		return others
	}
	n.known[key] = n.create(key)
	return n.known[key]
}

type method struct{ target, name string }

// labels are the attributes of a target and a method, or of a target alone.
type labels struct {
	option    metric.MeasurementOption
	decisions []metric.MeasurementOption // as outcomes
}

// others are the methods of all targets that are not told apart.
var others = newLabels(method{"other", "other"})

func newLabels(of method) *labels {
	target := attribute.String("grpc.target", canonical(of.target))
	name := attribute.String("grpc.method", strings.TrimPrefix(of.name, "/"))
	l := &labels{option: set(target, name)}
	for _, o := range outcomes {
		l.decisions = append(l.decisions, set(target, name, attribute.String("grpc.hedge.outcome", o.name)))
	}
	return l
}

func targetLabels(of method) *labels {
	return &labels{option: set(attribute.String("grpc.target", canonical(of.target)))}
}

func set(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// canonical returns a target as grpc.ClientConn.CanonicalTarget does, which gRPC's plugin uses.
func canonical(target string) string {
	if _, _, err := net.SplitHostPort(target); err != nil || strings.Contains(target, "/") {
		return target
	}
	scheme := resolver.GetDefaultScheme()
	if scheme == "passthrough" { // unless the program sets another, grpc.NewClient has its own
		scheme = "dns"
	}
	return scheme + ":///" + target
}
