package otel_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
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

var kinds = map[string]func(context.Context, testpb.TestServiceClient, uint64) error{
	"unary": func(ctx context.Context, c testpb.TestServiceClient, id uint64) error {
		_, err := c.Unary(ctx, &testpb.Request{Id: id})
		return err
	},
	"stream": func(ctx context.Context, c testpb.TestServiceClient, id uint64) error {
		st, err := c.ServerStream(ctx, &testpb.Request{Id: id, Messages: 2})
		for err == nil {
			_, err = st.Recv()
		}
		if err == io.EOF {
			return nil
		}
		return err
	},
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
		for kind, call := range kinds {
			t.Run(tc.name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
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
						if err := call(t.Context(), testpb.NewTestServiceClient(conn), id); err != nil {
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
			})
		}
	}
}
