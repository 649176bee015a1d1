// Package hedgeotel reports hedging to OpenTelemetry, alongside gRPC's own plugin and under its
// names.
//
//	telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: meters})
//	if err != nil {
//		return err
//	}
//	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*"), telemetry)
//	if err != nil {
//		return err
//	}
//	plugin := opentelemetry.Options{
//		MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: meters},
//		TraceOptions:   experimental.TraceOptions{TracerProvider: tracers, TextMapPropagator: propagation.TraceContext{}},
//	}
//	conn, err := grpc.NewClient(target, append(hedgeotel.DialOptions(s, plugin), creds)...)
//
// It is a separate module, so that users of package hedge alone do not depend on OpenTelemetry.
//
// # Metrics
//
// docs/observability.md lists the instruments, with kinds, units and attributes. The counts of
// schedulers with the same MeterProvider add up, and no counter falls. The provider bounds the series
// of an instrument.
//
// # Traces
//
// The span in the caller's context (with [DialOptions], the span of gRPC's plugin) gets an event
// when a hedge is sent or held back, and when a hedged call is decided. Attempts are gRPC's own
// spans. With otelgrpc in place of gRPC's plugin, see [TracerProvider].
package hedgeotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stats"
)

// Options are the options of New.
type Options struct {
	// MeterProvider makes the instruments. If it is nil, there are no metrics.
	MeterProvider metric.MeterProvider
}

// New returns an option for hedge.New that makes the scheduler report to OpenTelemetry.
func New(o Options) (hedge.Option, error) {
	t := &hedge.Trace{
		HedgeSent: func(e stats.HedgeSent) {
			addEvent(e.Context, "hedge sent", attribute.Int("hedge.number", e.Hedge),
				attribute.Float64("hedge.delay", e.Age.Seconds()), attribute.String("hedge.destination", e.Destination))
		},
		HedgeHeldBack: func(e stats.HedgeHeldBack) {
			addEvent(e.Context, "hedge held back", attribute.Int("hedge.number", e.Hedge),
				attribute.String("hedge.reason", string(e.Reason)))
		},
		CallDecided: func(e stats.CallDecided) {
			addEvent(e.Context, "hedged call decided", attribute.Int("hedge.attempts", e.Attempts),
				attribute.Int("hedge.winner", e.Winner), attribute.Float64("hedge.delay", e.Delay.Seconds()))
		},
	}
	if o.MeterProvider == nil {
		return hedge.WithTrace(t), nil
	}
	m, err := newMetrics(o.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("hedge: hedgeotel.New: %w", err)
	}
	decided := t.CallDecided
	t.CallDecided = func(e stats.CallDecided) {
		decided(e)
		l := labelsOf(e.Names)
		m.of[l.protocol].hedges.Record(e.Context, int64(e.Attempts-1), l.with())
	}
	t.AttemptLost = func(e stats.AttemptLost) {
		l := labelsOf(e.Names)
		m.of[l.protocol].losers.Record(e.Context, e.Ran.Seconds(), l.with())
	}
	t.Made = m.watch
	return hedge.WithTrace(t), nil
}

func addEvent(ctx context.Context, name string, attributes ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name, trace.WithAttributes(attributes...))
	}
}

// DialOptions returns gRPC's OpenTelemetry plugin, the dial options between, and the hedging
// interceptors of s, in this order, so that grpc.client.call.duration is the caller's latency,
// grpc.client.attempt.duration the latency of each attempt, and a call has one span with a child
// for each attempt. Pass interceptors for retries, timeouts and logging as between: each sees a
// call once. Do not add the hedging interceptors a second time. See also [TracerProvider].
func DialOptions(s *hedge.Scheduler, plugin opentelemetry.Options, between ...grpc.DialOption) []grpc.DialOption {
	if provider := plugin.TraceOptions.TracerProvider; provider != nil {
		plugin.TraceOptions.TracerProvider = TracerProvider(provider)
	}
	return interceptor.DialOptions(s, append([]grpc.DialOption{opentelemetry.DialOption(plugin)}, between...)...)
}

// TracerProvider returns a provider for a tracer of attempts inside the hedging interceptors, such
// as the stats.Handler of otelgrpc:
//
//	grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(hedgeotel.TracerProvider(tracers))))
//
// The span of a loser, whose context ended with the cause [hedge.ErrLost], has the attribute
// hedge.lost and is not an error. p makes the spans. A nil p is OpenTelemetry's global provider.
// [DialOptions] does the same for gRPC's own plugin.
func TracerProvider(p trace.TracerProvider) trace.TracerProvider {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return tracerProvider{p}
}

type tracerProvider struct{ trace.TracerProvider }

func (p tracerProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return tracer{p.TracerProvider.Tracer(name, options...)}
}

type tracer struct{ trace.Tracer }

func (t tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context,
	trace.Span) {
	attempt := ctx
	ctx, inner := t.Tracer.Start(ctx, name, options...)
	if !inner.IsRecording() {
		return ctx, inner
	}
	s := span{inner, attempt}
	return trace.ContextWithSpan(ctx, s), s
}

// span is the span of an attempt, or of a call, which never loses.
type span struct {
	trace.Span
	attempt context.Context
}

func (s span) SetStatus(code codes.Code, description string) {
	if code == codes.Error && context.Cause(s.attempt) == hedge.ErrLost {
		s.Span.SetAttributes(attribute.Bool("hedge.lost", true))
		return
	}
	s.Span.SetStatus(code, description)
}
