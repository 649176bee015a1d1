package otel_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

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
			if ours {
				tracers = hedgeotel.TracerProvider(b.tracers)
			}
			_, client := stragglers(t, b.otelgrpcOptions(s, tracers)...)
			b.spanned(t, client, 2000, 0)
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
		})
	}
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
		for _, call := range kinds { // its hedge fails, and then its caller gives up
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := call(ctx, testpb.NewTestServiceClient(conn), 1)
			cancel()
			if status.Code(err) != grpccodes.DeadlineExceeded {
				t.Errorf("%v", err)
			}
		}
		synctest.Wait()
		if n, want := b.traced(), (traced{attempts: 2 * len(kinds), errors: 2 * len(kinds),
			roots: 2 * len(kinds)}); n != want {
			t.Errorf("%+v, want %+v", n, want)
		}
	})
}

// TestTracerProvider_Global uses the provider that the program has set, as otelgrpc does without an
// option.
func TestTracerProvider_Global(t *testing.T) {
	b, before := newBackend(t), otel.GetTracerProvider()
	otel.SetTracerProvider(b.tracers)
	defer otel.SetTracerProvider(before)
	ctx, cancel := context.WithCancelCause(t.Context())
	_, span := hedgeotel.TracerProvider(nil).Tracer("test").Start(ctx, "attempt")
	cancel(hedge.ErrLost)
	span.SetStatus(codes.Error, "cancelled")
	span.End()
	if spans := b.spans.GetSpans(); len(spans) != 1 || !isLost(spans[0]) || spans[0].Status.Code == codes.Error {
		t.Errorf("%+v", spans)
	}
}
