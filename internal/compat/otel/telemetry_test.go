package otel_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/codes"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	experimental "google.golang.org/grpc/experimental/opentelemetry"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// backend is all that a process has for its telemetry: the SDK, gRPC's plugin, and a page for
// Prometheus.
type backend struct {
	registry *prometheus.Registry
	meters   *metric.MeterProvider
	reader   *metric.ManualReader
	tracers  *trace.TracerProvider
	spans    *tracetest.InMemoryExporter
}

func newBackend(t testing.TB) *backend {
	t.Helper()
	b := &backend{registry: prometheus.NewRegistry(), spans: tracetest.NewInMemoryExporter(),
		reader: metric.NewManualReader()}
	reader, err := exporter.New(exporter.WithRegisterer(b.registry))
	if err != nil {
		t.Fatal(err)
	}
	b.meters = metric.NewMeterProvider(metric.WithReader(reader), metric.WithReader(b.reader))
	b.tracers = trace.NewTracerProvider(trace.WithSyncer(b.spans))
	t.Cleanup(func() {
		_ = b.meters.Shutdown(context.Background())
		_ = b.tracers.Shutdown(context.Background())
	})
	return b
}

func (b *backend) plugin() opentelemetry.Options {
	return opentelemetry.Options{
		MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: b.meters},
		TraceOptions:   experimental.TraceOptions{TracerProvider: b.tracers, TextMapPropagator: propagation.TraceContext{}},
	}
}

// telemetry returns the option that reports to b, for at most the given number of methods, if there
// is one.
func (b *backend) telemetry(t testing.TB, most ...int) hedge.Option {
	t.Helper()
	o, err := hedgeotel.New(hedgeotel.Options{MeterProvider: b.meters, MaxMethods: append(most, 0)[0]})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// scrape returns the page that Prometheus would read.
func (b *backend) scrape() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// stragglers starts three backends that answer one attempt in twenty late, and connects to them.
func stragglers(t *testing.T, options ...grpc.DialOption) (*testserver.Cluster, testpb.TestServiceClient) {
	t.Helper()
	cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3,
		Latency: testserver.DistributionT(t, "straggler"), Seed: 1, CountsOnly: true})
	conn := cluster.ClientT(t, options...)
	testserver.ConnectT(t, conn)
	synctest.Wait()
	return cluster, testpb.NewTestServiceClient(conn)
}

// spanned makes calls, twenty at a time, each in a span of its caller's; a tenth are streams.
func (b *backend) spanned(t *testing.T, client testpb.TestServiceClient, calls int, pause time.Duration) {
	tracer := b.tracers.Tracer("test")
	var callers sync.WaitGroup
	for caller := range 20 {
		callers.Go(func() {
			for n := caller; n < calls; n += 20 {
				ctx, span := tracer.Start(t.Context(), "request")
				if err := call(ctx, map[bool]string{false: "unary", true: "stream"}[n%10 == 0], client, uint64(n)); err != nil {
					t.Error(err)
				}
				span.End()
				time.Sleep(pause)
			}
		})
	}
	callers.Wait()
	synctest.Wait()
}

// TestTelemetry_TenThousandCalls makes 10,000 calls in eleven minutes of virtual time, twenty at a
// time; a tenth are server streams. It compares metrics and spans with the counts of the servers
// and the scheduler.
func TestTelemetry_TenThousandCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 10_000
		b := newBackend(t)
		s := hedgetest.All(t, b.telemetry(t), hedge.WithControl(20))
		cluster, client := stragglers(t, hedgeotel.DialOptions(s, b.plugin())...)
		b.spanned(t, client, calls, 1300*ms)
		stats, all := s.Stats(), collect(t, b.reader)
		if stats.Calls != calls || stats.Hedges < 300 {
			t.Fatalf("%+v, want %d calls and 300 hedges at least", stats, calls)
		}
		const outcome = "grpc.hedge.outcome="
		for _, tc := range []struct {
			name, having string
			want         int64
			exemplars    bool
		}{
			{name: "call.duration", having: "grpc.status=OK", want: calls, exemplars: true},
			{name: "call.duration", want: calls, exemplars: true},
			{name: "attempt.duration", want: cluster.Counts().Attempts, exemplars: true},
			{name: "attempt.duration", having: "grpc.status=CANCELLED", want: stats.Hedges, exemplars: true},
			{name: "call.hedges", want: stats.Hedged, exemplars: true}, {name: "call.hedges.sum", want: stats.Hedges},
			{name: "hedge.calls", want: calls}, {name: "hedge.sent", want: stats.Hedges},
			{name: "hedge.loser.duration", want: stats.Hedges, exemplars: true},
			{name: "hedge.decisions", having: outcome + "won", want: stats.HedgeWins},
			{name: "hedge.decisions", having: outcome + "no_budget", want: stats.BudgetExhausted},
		} {
			name := "grpc.client." + tc.name
			got, _ := sum(all, name, strings.Fields(tc.having)...)
			if got != float64(tc.want) || tc.exemplars &&
				!slices.ContainsFunc(all, func(s series) bool { return s.name == name && s.exemplars > 0 }) {
				t.Errorf("%s %s is %v, want %d, with exemplars: %t", name, tc.having, got, tc.want, tc.exemplars)
			}
		}
		var lost, other int64
		events := map[string]int64{}
		for _, span := range b.spans.GetSpans() {
			for _, event := range span.Events {
				events[event.Name]++
			}
			switch {
			case isLost(span) && span.Status.Code != codes.Error:
				lost++
			case span.Status.Code != codes.Ok && span.Name != "request":
				other++
			}
		}
		if events["hedge sent"] != stats.Hedges || events["hedged call decided"] != stats.Hedged ||
			lost != stats.Hedges || other != 0 {
			t.Errorf("events %v, %d losers, %d other spans without a status; %+v", events, lost, other, stats)
		}
	})
}
