package otel_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// BenchmarkEverythingOn makes calls that need no hedge in turns: through a client with gRPC's plugin alone, and through one
// that hedges with everything on. It reports the throughput of the second as a share of the first's, the median of all turns.
func BenchmarkEverythingOn(b *testing.B) {
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprintf("traces=%t", traced), func(b *testing.B) { everythingOn(b, traced) })
	}
}

func everythingOn(b *testing.B, traced bool) {
	tel := &backend{meters: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), tracers: trace.NewTracerProvider()}
	plugin := tel.plugin()
	if !traced {
		plugin = opentelemetry.Options{MetricsOptions: plugin.MetricsOptions}
	}
	telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: tel.meters})
	if err != nil {
		b.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := hedge.New(hedge.WithAllMethods(), hedge.WithMinDelay(time.Second), hedge.WithLogger(logger), telemetry)
	if err != nil {
		b.Fatal(err)
	}
	cluster := testserver.StartT(b, testserver.Config{CountsOnly: true})
	dial := func(options ...grpc.DialOption) testpb.TestServiceClient {
		conn := cluster.ClientT(b, options...)
		testserver.ConnectT(b, conn)
		return testpb.NewTestServiceClient(conn)
	}
	clients := [2]testpb.TestServiceClient{dial(opentelemetry.DialOption(plugin)), dial(hedgeotel.DialOptions(s, plugin)...)}
	const turn = 1000
	calls := func(c testpb.TestServiceClient) time.Duration {
		began := time.Now()
		for n := range turn {
			if _, err := c.Unary(context.Background(), &testpb.Request{Id: uint64(n)}); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(began)
	}
	var shares []float64
	for b.Loop() {
		took := [2]time.Duration{}
		for _, i := range [][]int{{0, 1}, {1, 0}}[len(shares)%2] {
			took[i] = calls(clients[i])
		}
		shares = append(shares, float64(took[0])/float64(took[1]))
	}
	slices.Sort(shares)
	b.ReportMetric(shares[len(shares)/2], "share")
	if stats := s.Stats(); stats.Hedges > stats.Calls/100 {
		b.Errorf("%+v", stats)
	}
}
