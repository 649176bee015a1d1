package otel_test

import (
	"context"
	"fmt"
	"maps"
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
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
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
