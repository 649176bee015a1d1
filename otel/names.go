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
	most    int
	methods bounded[method, *labels]
	targets bounded[string, metric.MeasurementOption]
}

// bounded has the attributes of the first keys that were asked for.
type bounded[K comparable, V any] struct {
	mu    sync.RWMutex
	known map[K]V
}

// of returns the attributes of a key; other if there are too many. Each call asks, so a known key takes no exclusive lock.
func (b *bounded[K, V]) of(key K, most int, other V, create func(K) V) V {
	b.mu.RLock()
	v, ok := b.known[key]
	b.mu.RUnlock()
	if ok {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := b.known[key]; ok {
		return v
	}
	if len(b.known) >= most {
		return other
	}
	if b.known == nil {
		b.known = map[K]V{}
	}
	b.known[key] = create(key)
	return b.known[key]
}

type method struct{ target, name string }

// labels are the attributes of a target and a method.
type labels struct {
	option    metric.MeasurementOption
	decisions []metric.MeasurementOption // as outcomes
}

// others are the methods of all targets that are not told apart.
var others = newLabels(method{"other", "other"})

func (n *names) of(target, name string) *labels {
	return n.methods.of(method{target, name}, n.most, others, newLabels)
}

// ofTarget returns the attribute of a target; nil if it is not told apart.
func (n *names) ofTarget(target string) metric.MeasurementOption {
	return n.targets.of(target, n.most, nil, func(string) metric.MeasurementOption {
		return set(attribute.String("grpc.target", canonical(target)))
	})
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
