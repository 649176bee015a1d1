package otel_test

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	experimental "google.golang.org/grpc/experimental/opentelemetry"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// byAttempt counts spans by kind, and attempt spans by the attribute previous-rpc-attempts.
func (b *backend) byAttempt() map[string]uint64 {
	counts := map[string]uint64{}
	for _, span := range b.spans.GetSpans() {
		name := span.Name[:len("Sent")]
		for _, a := range span.Attributes {
			if a.Key == "previous-rpc-attempts" {
				name = fmt.Sprint("attempt ", a.Value.AsInt64())
			}
		}
		counts[name]++
	}
	return counts
}

// call makes a call of a kind with two messages.
func call(ctx context.Context, kind string, c testpb.TestServiceClient, id uint64) error {
	_, err := hedgetest.Kinds[kind](ctx, c, &testpb.Request{Id: id, Messages: 2})
	return err
}

// TestOrder makes 300 calls, 24 of them won by a hedge, with the interceptors in the order of
// docs/chaining.md, and in others.
func TestOrder(t *testing.T) {
	const calls, hedged = 300, 24
	type counts = map[string]uint64
	right := [3]counts{
		{"OK": calls},
		{"OK": calls, "CANCELLED": hedged},
		{"Sent": calls, "attempt 0": calls, "attempt 1": hedged},
	}
	wrong := [3]counts{ // each attempt is a call
		{"OK": calls, "CANCELLED": hedged},
		{"OK": calls, "CANCELLED": hedged},
		{"Sent": calls + hedged, "attempt 0": calls + hedged},
	}
	for _, tc := range []struct {
		name    string
		options func(plugin grpc.DialOption, s *hedge.Scheduler) []grpc.DialOption
		want    [3]counts // call samples, attempt samples, spans
	}{
		{"the plugin first, then the chain forms", func(plugin grpc.DialOption, s *hedge.Scheduler) []grpc.DialOption {
			return append([]grpc.DialOption{plugin}, hedgetest.Interceptors(s)...)
		}, right},
		{"the chain forms, then the plugin", func(plugin grpc.DialOption, s *hedge.Scheduler) []grpc.DialOption {
			return append(hedgetest.Interceptors(s), plugin)
		}, wrong},
		{"the plugin first, then the forms that are always outermost",
			func(plugin grpc.DialOption, s *hedge.Scheduler) []grpc.DialOption {
				return []grpc.DialOption{plugin,
					grpc.WithUnaryInterceptor(interceptor.Unary(s)), grpc.WithStreamInterceptor(stream.Interceptor(s))}
			}, wrong},
	} {
		for kind := range hedgetest.Kinds {
			hedgetest.Run(t, tc.name+"/"+kind, func(t *testing.T) {
				cluster := testserver.StartT(t,
					testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
						if a.Number == 0 && a.ID < hedged {
							return testserver.Plan{Delay: time.Hour}
						}
						return testserver.Plan{Delay: ms}
					}})
				s := hedgetest.Fixed(t, 10*ms)
				b := newBackend(t)
				conn := cluster.ClientT(t, tc.options(opentelemetry.DialOption(b.plugin()), s)...)
				testserver.ConnectT(t, conn)
				synctest.Wait()
				for id := range uint64(calls) {
					if err := call(t.Context(), kind, testpb.NewTestServiceClient(conn), id); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if seen := cluster.Counts().Attempts; seen != calls+hedged {
					t.Errorf("the servers saw %d attempts, want %d", seen, calls+hedged)
				}
				got := [3]counts{{}, {}, b.byAttempt()}
				for _, s := range collect(t, b.reader) {
					if i := slices.Index([]string{"grpc.client.call.duration", "grpc.client.attempt.duration"}, s.name); i >= 0 {
						got[i][s.get("grpc.status")] += uint64(s.value)
					}
				}
				for i, of := range []string{"samples of calls", "samples of attempts", "spans"} {
					if !maps.Equal(got[i], tc.want[i]) {
						t.Errorf("%s: %v, want %v", of, got[i], tc.want[i])
					}
				}
			})
		}
	}
}

// otelgrpcOptions returns the dial options of a client with attempts traced by otelgrpc.
func (b *backend) otelgrpcOptions(s *hedge.Scheduler, tracers trace.TracerProvider) []grpc.DialOption {
	return append(hedgetest.Interceptors(s), grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(tracers), otelgrpc.WithMeterProvider(b.meters),
		otelgrpc.WithPropagators(propagation.TraceContext{}))))
}

// traced are the attempts that otelgrpc has traced.
type traced struct {
	attempts, lost, errors, events, roots int
}

func (b *backend) traced() (n traced) {
	for _, span := range b.spans.GetSpans() {
		if span.SpanKind != trace.SpanKindClient { // the caller's
			for _, event := range span.Events {
				if strings.HasPrefix(event.Name, "hedge") {
					n.events++
				}
			}
			continue
		}
		n.attempts++
		if !span.Parent.IsValid() {
			n.roots++
		}
		if span.Status.Code == codes.Error {
			n.errors++
		}
		if isLost(span) {
			n.lost++
		}
	}
	return n
}

func isLost(span tracetest.SpanStub) bool {
	return slices.Contains(span.Attributes, attribute.Bool("hedge.lost", true))
}

// TestOtelgrpc_Losers traces the attempts of hedged calls with otelgrpc, which alone marks losers
// as errors. One call in twenty is slow.
func TestOtelgrpc_Losers(t *testing.T) {
	for _, ours := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBackend(t)
			s := hedgetest.All(t, b.telemetry(t))
			var tracers trace.TracerProvider = b.tracers
			if ours { // around the global provider, as otelgrpc uses it without an option
				before := otel.GetTracerProvider()
				defer otel.SetTracerProvider(before)
				otel.SetTracerProvider(b.tracers)
				tracers = hedgeotel.TracerProvider(nil)
			}
			client := stragglers(t, b.otelgrpcOptions(s, tracers)...)
			b.spanned(t, client, 2000)
			n, stats := b.traced(), s.Stats()
			t.Logf("ours %t: %d calls, %d hedges: %+v", ours, stats.Calls, stats.Hedges, n)
			losers := int(stats.Hedges) // each hedged call has one winner
			want := traced{attempts: int(stats.Calls) + losers, lost: losers, events: n.events}
			if !ours {
				want.lost, want.errors = 0, losers
			}
			if n != want || stats.Hedges < 100 || n.events < int(stats.Hedges+stats.Hedged) {
				t.Errorf("ours %t: %+v, want %+v; %+v", ours, n, want, stats)
			}
			all := collect(t, b.reader)
			for name, want := range map[string]int64{"call.hedges": stats.Hedged, "hedge.loser.duration": stats.Hedges} {
				name = "grpc.client." + name
				if got, _ := sum(all, name); got != float64(want) ||
					!slices.ContainsFunc(all, func(s series) bool { return s.name == name && s.exemplars > 0 }) {
					t.Errorf("%s has %v samples, want %d, with exemplars", name, got, want)
				}
			}
		})
	}
}

// TestPlugin_Losers has gRPC's plugin trace the attempts: a loser is marked, and is no error.
func TestPlugin_Losers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		s := hedgetest.All(t, b.telemetry(t))
		b.spanned(t, stragglers(t, hedgeotel.DialOptions(s, b.plugin())...), 2000)
		lost := int64(0)
		for _, span := range b.spans.GetSpans() {
			if isLost(span) && span.Status.Code != codes.Error {
				lost++
			}
		}
		if hedges := s.Stats().Hedges; lost != hedges || hedges < 100 {
			t.Errorf("%d losers are marked, and no errors, want each of %d", lost, hedges)
		}
	})
}

// TestOtelgrpc_Failures expects what fails for other reasons to remain an error.
func TestOtelgrpc_Failures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
			testserver.Plan{Delay: time.Hour}, testserver.Plan{Delay: ms, Code: grpccodes.Unavailable})})
		conn := cluster.ClientT(t, b.otelgrpcOptions(s, hedgeotel.TracerProvider(b.tracers))...)
		testserver.ConnectT(t, conn)
		for kind := range hedgetest.Kinds { // its hedge fails, and then its caller gives up
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := call(ctx, kind, testpb.NewTestServiceClient(conn), 1)
			cancel()
			if status.Code(err) != grpccodes.DeadlineExceeded {
				t.Errorf("the call ends with %v, want its deadline", err)
			}
		}
		synctest.Wait()
		if n, want := b.traced(), (traced{attempts: 2 * len(hedgetest.Kinds), errors: 2 * len(hedgetest.Kinds),
			roots: 2 * len(hedgetest.Kinds)}); n != want {
			t.Errorf("%+v, want %+v", n, want)
		}
	})
}

// backend is all that a process has for its telemetry: the SDK, gRPC's plugin, and a page for
// Prometheus.
type backend struct {
	registry *prometheus.Registry
	meters   *metric.MeterProvider
	reader   *metric.ManualReader
	tracers  *sdktrace.TracerProvider
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
	b.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans))
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

// telemetry returns the option that reports to b.
func (b *backend) telemetry(t testing.TB) hedge.Option {
	t.Helper()
	o, err := hedgeotel.New(hedgeotel.Options{MeterProvider: b.meters})
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
func stragglers(t *testing.T, options ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3,
		Latency: testserver.DistributionT(t, "straggler"), Seed: 1, CountsOnly: true})
	conn := cluster.ClientT(t, options...)
	testserver.ConnectT(t, conn)
	synctest.Wait()
	return testpb.NewTestServiceClient(conn)
}

// spanned makes calls, twenty at a time, each in a span of its caller's; a tenth are streams.
func (b *backend) spanned(t *testing.T, client testpb.TestServiceClient, calls int) {
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
			}
		})
	}
	callers.Wait()
	synctest.Wait()
}
