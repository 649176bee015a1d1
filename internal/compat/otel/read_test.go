package otel_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// series is one series of a metric: of a histogram, the number of its samples, and under the name
// with ".sum" their sum.
type series struct {
	name, unit string
	attributes attribute.Set
	value      float64
	exemplars  int
}

func (s series) get(key string) string {
	value, _ := s.attributes.Value(attribute.Key(key))
	return value.AsString()
}

// collect reads all series.
func collect(t *testing.T, reader *metric.ManualReader) (all []series) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				all = append(all, points(m, d.DataPoints)...)
			case metricdata.Gauge[float64]:
				all = append(all, points(m, d.DataPoints)...)
			case metricdata.Histogram[int64]:
				all = append(all, samples(m, d.DataPoints)...)
			case metricdata.Histogram[float64]:
				all = append(all, samples(m, d.DataPoints)...)
			}
		}
	}
	return all
}

func points[N int64 | float64](m metricdata.Metrics, of []metricdata.DataPoint[N]) (all []series) {
	for _, p := range of {
		all = append(all, series{m.Name, m.Unit, p.Attributes, float64(p.Value), 0})
	}
	return all
}

func samples[N int64 | float64](m metricdata.Metrics, of []metricdata.HistogramDataPoint[N]) (all []series) {
	for _, p := range of {
		all = append(all, series{m.Name, m.Unit, p.Attributes, float64(p.Count), len(p.Exemplars)},
			series{m.Name + ".sum", m.Unit, p.Attributes, float64(p.Sum), 0})
	}
	return all
}

// sum returns the sum and the number of the series with a name and with the attributes, each as
// "key=value".
func sum(all []series, name string, having ...string) (total float64, n int) {
next:
	for _, s := range all {
		if s.name != name {
			continue
		}
		for _, h := range having {
			if key, value, _ := strings.Cut(h, "="); s.get(key) != value {
				continue next
			}
		}
		total += s.value
		n++
	}
	return total, n
}
