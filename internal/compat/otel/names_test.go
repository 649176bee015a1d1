package otel_test

import (
	"context"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestMetrics_AreThoseOfTheDocumentation lets each metric be reported. The names, the units and the values of attributes are those that the
// documentation has.
func TestMetrics_AreThoseOfTheDocumentation(t *testing.T) {
	type described struct{ name, unit, value string }
	var got []described
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		s := hedgetest.All(t, hedgetest.Throttle(100, 0.1), hedge.WithControl(20), telemetry)
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Latency: testserver.DistributionT(t, "straggler"), Seed: 1, CountsOnly: true})
		conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
		testserver.ConnectT(t, conn)
		client := testpb.NewTestServiceClient(conn)
		for n := range 5000 {
			if _, err := client.Unary(t.Context(), &testpb.Request{Id: uint64(n)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(130 * time.Millisecond) // a gain is measured in ten minutes
		}
		var data metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &data); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(s)
		for _, m := range data.ScopeMetrics[0].Metrics {
			got = append(got, described{name: m.Name, unit: m.Unit})
			points, _ := m.Data.(metricdata.Gauge[float64])
			for _, p := range points.DataPoints {
				short := strings.TrimPrefix(m.Name, "grpc.client.hedge.")
				if which, several := p.Attributes.Value(attribute.Key("grpc.hedge." + short)); several {
					got = append(got, described{m.Name, m.Unit, which.AsString()})
				}
			}
		}
	})

	var named []described
	page, err := os.ReadFile("../../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	unit := regexp.MustCompile(`, (s|\{\w+\})$`)
	for _, row := range regexp.MustCompile("(?m)^\\| `(grpc[\\w.]+)` \\| ([^|]*) \\| (.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		d := described{name: row[1]}
		if u := unit.FindStringSubmatch(row[2]); u != nil {
			d.unit = u[1]
		}
		named = append(named, d)
		if d.name == "grpc.client.hedge.tail" || d.name == "grpc.client.hedge.gain" {
			for _, value := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[3], -1) {
				named = append(named, described{d.name, d.unit, value[1]})
			}
		}
	}
	order := func(a, b described) int { return strings.Compare(a.name+" "+a.value, b.name+" "+b.value) }
	slices.SortFunc(got, order)
	slices.SortFunc(named, order)
	if !slices.Equal(got, named) {
		t.Errorf("there are\n%+v\nand docs/observability.md has\n%+v", got, named)
	}
	comment, err := os.ReadFile("../../../otel/otel.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		if d.value == "" && !strings.Contains(string(comment), "//   - "+d.name+", a ") || !strings.Contains(string(comment), `"`+d.value+`"`) && d.value != "" {
			t.Errorf("the package's comment does not name %+v", d)
		}
	}
}
