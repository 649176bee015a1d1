package otel_test

import (
	"context"
	"flag"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	experimental "google.golang.org/grpc/experimental/opentelemetry"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

var printScrape = flag.Bool("telemetry.print", false, "print the scrape and what the dashboard's queries return")

// backend is all that a process has for its telemetry: the SDK, gRPC's plugin, and a page for Prometheus.
type backend struct {
	registry *prometheus.Registry
	meters   *metric.MeterProvider
	tracers  *trace.TracerProvider
	spans    *tracetest.InMemoryExporter
}

func newBackend(t testing.TB) *backend {
	t.Helper()
	b := &backend{registry: prometheus.NewRegistry(), spans: tracetest.NewInMemoryExporter()}
	reader, err := exporter.New(exporter.WithRegisterer(b.registry))
	if err != nil {
		t.Fatal(err)
	}
	b.meters = metric.NewMeterProvider(metric.WithReader(reader))
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

// scrape returns the page that Prometheus would read, in the format that has exemplars.
func (b *backend) scrape() []byte {
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	promhttp.HandlerFor(b.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, request)
	return w.Body.Bytes()
}

// observed is what 10,000 calls left behind.
type observed struct {
	scrapes [][]byte // at thirds of the run
	spans   tracetest.SpanStubs
	stats   stats.Counts
	servers testserver.Counts
}

const tenThousand = 10_000

// tenThousandCalls makes them in eleven minutes of virtual time, twenty at a time: a tenth are server streams. Slow calls are
// hedged as the trigger Auto finds best, but for a control group.
func tenThousandCalls(t *testing.T) (o observed) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: b.meters})
		if err != nil {
			t.Fatal(err)
		}
		s := hedgetest.All(t, hedgetest.Throttle(100, 0.1), hedge.WithControl(20), telemetry)
		distribution := testserver.DistributionT(t, "straggler")
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3, Latency: distribution, Seed: 1, CountsOnly: true})
		conn := cluster.ClientT(t, hedgeotel.DialOptions(s, b.plugin())...)
		testserver.ConnectT(t, conn)
		synctest.Wait()
		client := testpb.NewTestServiceClient(conn)
		tracer := b.tracers.Tracer("test")
		o.scrapes = append(o.scrapes, b.scrape())
		for third := range 3 {
			var callers sync.WaitGroup
			for caller := range 20 {
				callers.Go(func() {
					for n := caller + 20*third; n < tenThousand; n += 60 {
						ctx, span := tracer.Start(t.Context(), "request")
						call := kinds["unary"]
						if n%10 == 0 {
							call = kinds["stream"]
						}
						if err := call(ctx, client, uint64(n)); err != nil {
							t.Error(err)
						}
						span.End()
						time.Sleep(1300 * ms) // a gain is measured in ten minutes
					}
				})
			}
			callers.Wait()
			synctest.Wait()
			o.scrapes = append(o.scrapes, b.scrape())
		}
		o.spans, o.stats, o.servers = b.spans.GetSpans(), s.Stats(), cluster.Counts()
	})
	return o
}

// TestTelemetry_TenThousandCalls compares what is scraped and traced with what the servers and the scheduler counted.
func TestTelemetry_TenThousandCalls(t *testing.T) {
	o := tenThousandCalls(t)
	p := newPrometheus(t, o.scrapes)
	if *printScrape {
		t.Logf("the last scrape:\n%s", o.scrapes[len(o.scrapes)-1])
	}
	if o.stats.Calls != tenThousand || o.stats.Hedges < 300 {
		t.Fatalf("%+v", o.stats)
	}
	for _, tc := range []struct {
		query string
		want  int64
	}{
		{`sum(grpc_client_call_duration_seconds_count)`, tenThousand},
		{`sum(grpc_client_call_duration_seconds_count{grpc_status="OK"})`, tenThousand},
		{`sum(grpc_client_attempt_duration_seconds_count)`, o.servers.Attempts},
		{`sum(grpc_client_call_hedges_sum)`, o.stats.Hedges},
		{`sum(grpc_client_call_hedges_count)`, o.stats.Hedged},
		{`sum(grpc_client_hedge_calls_total)`, tenThousand},
		{`sum(grpc_client_hedge_decisions_total{grpc_hedge_outcome="won"})`, o.stats.HedgeWins},
		{`sum(grpc_client_hedge_decisions_total{grpc_hedge_outcome="lost"})`, o.stats.PrimaryWins},
		{`sum(grpc_client_hedge_decisions_total{grpc_hedge_outcome="no_budget"})`, o.stats.BudgetExhausted},
		{`sum(grpc_client_hedge_decisions_total{grpc_hedge_outcome="learning"})`, o.stats.Warmup},
		{`sum(grpc_client_attempt_duration_seconds_count{grpc_status="CANCELLED"})`, o.stats.Hedges},
		{`sum(grpc_client_hedge_loser_duration_seconds_count)`, o.stats.Hedges},
		// The labels are those of gRPC's plugin, so that series can be divided by each other.
		{`sum(grpc_client_call_duration_seconds_count and on (grpc_method, grpc_target) grpc_client_call_hedges_count)`, tenThousand},
	} {
		got := p.query(t, tc.query)
		t.Logf("%-90s %v", tc.query, got)
		if len(got) != 1 || got[0].F != float64(tc.want) {
			t.Errorf("%s is %v, want %d", tc.query, got, tc.want)
		}
	}
	for _, name := range []string{"grpc_client_call_duration_seconds_bucket", "grpc_client_call_hedges_bucket", "grpc_client_hedge_loser_duration_seconds_bucket"} {
		if p.exemplars[name] == 0 {
			t.Errorf("%s has no exemplar", name)
		}
	}
	t.Logf("exemplars: %v", p.exemplars)

	var sent, decided, lost, other int64
	for _, span := range o.spans {
		if span.Status.Code == codes.Error {
			t.Fatalf("an error span: %+v", span)
		}
		for _, event := range span.Events {
			switch event.Name {
			case "hedge sent":
				sent++
			case "hedged call decided":
				decided++
			}
		}
		switch {
		case slices.Contains(span.Attributes, attribute.Bool("hedge.lost", true)):
			lost++
		case span.Status.Code != codes.Ok && span.Name != "request":
			other++
		}
	}
	t.Logf("%d spans: %d hedges sent, %d calls decided, %d losers, 0 errors", len(o.spans), sent, decided, lost)
	if sent != o.stats.Hedges || decided != o.stats.Hedged || lost != o.stats.Hedges || other != 0 {
		t.Errorf("spans: %d hedges sent, %d calls decided, %d losers, %d others without a status; %+v", sent, decided, lost, other, o.stats)
	}
}

// TestTelemetry_Plugin alone marks losers as errors, which is why DialOptions does something about it.
func TestTelemetry_PluginAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ours := range []bool{false, true} {
			b := newBackend(t)
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(testserver.Plan{Delay: time.Hour}, testserver.Plan{Delay: ms})})
			options := hedgeotel.DialOptions(s, b.plugin())
			if !ours {
				options[0] = opentelemetry.DialOption(b.plugin())
			}
			conn := cluster.ClientT(t, options...)
			testserver.ConnectT(t, conn)
			for _, call := range kinds {
				if err := call(t.Context(), testpb.NewTestServiceClient(conn), 1); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			errors := 0
			for _, span := range b.spans.GetSpans() {
				if span.Status.Code == codes.Error {
					errors++
				}
			}
			if want := map[bool]int{false: len(kinds), true: 0}[ours]; errors != want {
				t.Errorf("ours %t: %d error spans, want %d", ours, errors, want)
			}
		}
	})
}

// TestDashboard_EveryQueryReturnsSomething runs the queries of the dashboard and of the alerts on what was scraped.
func TestDashboard_EveryQueryReturnsSomething(t *testing.T) {
	p := newPrometheus(t, tenThousandCalls(t).scrapes)
	for _, q := range dashboardQueries(t) {
		got := p.query(t, q.expr)
		t.Logf("%s\n\t%s\n\t%v", q.title, q.expr, got)
		if len(got) == 0 {
			t.Errorf("%s: nothing from %s", q.title, q.expr)
		}
	}
	for _, q := range alertQueries(t) {
		p.query(t, q.expr) // an alert that does not fire returns nothing
		for _, name := range metricNames(t, q.expr) {
			if got := p.query(t, "count("+name+")"); len(got) == 0 {
				t.Errorf("%s: there is no %s", q.title, name)
			}
		}
	}
}
