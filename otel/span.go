package hedgeotel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/grpchedge/hedge"
)

// tracerProvider makes spans of attempts that know when their attempt has lost.
type tracerProvider struct{ trace.TracerProvider }

func (p tracerProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return tracer{p.TracerProvider.Tracer(name, options...)}
}

type tracer struct{ trace.Tracer }

func (t tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	attempt := ctx
	ctx, inner := t.Tracer.Start(ctx, name, options...)
	if !strings.HasPrefix(name, "Attempt.") || !inner.IsRecording() { // as gRPC's plugin names them
		return ctx, inner
	}
	s := span{inner, attempt}
	return trace.ContextWithSpan(ctx, s), s
}

// span is one of an attempt.
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
