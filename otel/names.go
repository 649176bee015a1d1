package hedgeotel

import (
	"net"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/resolver"
)

// names bounds the attributes that metrics have, and keeps them, so that recording makes none.
type names struct {
	most int

	mu      sync.RWMutex
	methods map[method]*labels
	targets map[string]metric.MeasurementOption
}

type method struct{ target, name string }

// labels are the attributes of a target and a method.
type labels struct {
	option    metric.MeasurementOption
	decisions []metric.MeasurementOption // as outcomes
}

func newNames(most int) *names {
	return &names{most: most, methods: map[method]*labels{}, targets: map[string]metric.MeasurementOption{}}
}

// others are the methods of all targets that are not told apart.
var others = newLabels(method{"other", "other"})

// of returns the attributes of a method.
func (n *names) of(target, name string) *labels {
	key := method{target, name}
	n.mu.RLock()
	l := n.methods[key]
	n.mu.RUnlock()
	if l != nil {
		return l
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l = n.methods[key]; l != nil {
		return l
	}
	if len(n.methods) >= n.most {
		return others
	}
	l = newLabels(key)
	n.methods[key] = l
	return l
}

// ofTarget returns the attribute of a target; nil if it is not told apart.
func (n *names) ofTarget(target string) metric.MeasurementOption {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.targets[target]
	if o == nil && len(n.targets) < n.most {
		o = set(attribute.String("grpc.target", canonical(target)))
		n.targets[target] = o
	}
	return o
}

func newLabels(of method) *labels {
	attributes := []attribute.KeyValue{
		attribute.String("grpc.target", canonical(of.target)), attribute.String("grpc.method", strings.TrimPrefix(of.name, "/")),
	}
	l := &labels{option: set(attributes...)}
	for _, o := range outcomes {
		l.decisions = append(l.decisions, set(append(attributes[:2:2], attribute.String("grpc.hedge.outcome", o.name))...))
	}
	return l
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
