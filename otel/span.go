package hedgeotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/grpchedge/hedge"
)

// tracerProvider makes spans that know when their attempt has lost.
type tracerProvider struct{ trace.TracerProvider }

func (p tracerProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return tracer{p.TracerProvider.Tracer(name, options...)}
}

type tracer struct{ trace.Tracer }

func (t tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	attempt := ctx
	ctx, inner := t.Tracer.Start(ctx, name, options...)
	s := span{inner, attempt}
	return trace.ContextWithSpan(ctx, s), s
}

// span is one of an attempt or of a call. The context of a call has no cause that says that it lost.
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
