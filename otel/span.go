package hedgeotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/grpchedge/hedge"
)

// TracerProvider returns a provider for a tracer of attempts inside of the hedging interceptors,
// such as the stats.Handler of otelgrpc:
//
//	grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(hedgeotel.TracerProvider(tracers))))
//
// The span of a losing attempt has the attribute hedge.lost and is no error: the status Error is
// not set on a span whose context ended with the cause [hedge.ErrLost]. p makes the spans. A nil p
// is OpenTelemetry's global provider. [DialOptions] does the same for gRPC's own plugin.
func TracerProvider(p trace.TracerProvider) trace.TracerProvider {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return tracerProvider{p}
}

// tracerProvider makes spans that recognise that their attempt has lost.
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
