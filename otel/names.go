package hedgeotel

import (
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/grpchedge/hedge/stats"
)

// names has the attributes of the first methods. Later methods share the attributes of method
// other.
type names struct {
	most int

	mu     sync.Mutex
	known  map[stats.Names]*labels
	order  []*labels // in the order of their first call
	others *labels   // of all further methods
}

func newNames(most int) *names {
	return &names{most: most, known: map[stats.Names]*labels{},
		others: newLabels(stats.Names{Target: other, Method: other})}
}

// allow raises the number of methods to most.
func (n *names) allow(most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.most = max(n.most, most)
}

// other is the name that gRPC's plugin gives to methods that it does not distinguish.
const other = "other"

// of returns the attributes of a method, or of a target if key has no method.
func (n *names) of(key stats.Names) *labels {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.known[key]
	switch {
	case l != nil:
	case len(n.order) >= n.most:
		l = n.others
	default:
		l = newLabels(key)
		n.known[key], n.order = l, append(n.order, l)
	}
	return l
}

// all returns the attributes of all methods, and of other at the end.
func (n *names) all() []*labels {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append(slices.Clip(n.order), n.others)
}

// labels are the attributes of a target and a method, or of a target alone, and their counts.
// metrics.mu guards the counts.
type labels struct {
	attributes []attribute.KeyValue
	option     metric.MeasurementOption
	protocol   int // an index of protocols
	single     bool

	total     stats.Counts
	moved     int64
	connected bool // a connection has the policy
	selected  bool // there was a call that may be hedged
	decisions [len(counts{})]metric.MeasurementOption
}

func newLabels(of stats.Names) *labels {
	l := &labels{single: of.Method != other}
	prefix := "grpc."
	if strings.HasPrefix(of.Target, "http://") || strings.HasPrefix(of.Target, "https://") { // of package hedgehttp
		l.protocol, prefix = 1, "http.hedge." // http.target and http.method already have another meaning
	}
	l.attributes = []attribute.KeyValue{attribute.String(prefix+"target", of.Target)}
	if of.Method != "" {
		l.attributes = append(l.attributes, attribute.String(prefix+"method", of.Method))
	}
	l.option = metric.WithAttributeSet(attribute.NewSet(l.attributes...))
	return l
}

// with returns the attributes plus one of hedging.
func (l *labels) with(name, value string) metric.MeasurementOption {
	more := attribute.String(protocols[l.protocol]+".hedge."+name, value)
	return metric.WithAttributes(append(slices.Clip(l.attributes), more)...)
}
