package interceptor_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// copying is a stats handler that copies the outgoing metadata, as those do that trace calls.
type copying struct{ stats.Handler }

func (copying) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (copying) HandleConn(context.Context, stats.ConnStats)                       {}
func (copying) HandleRPC(context.Context, stats.RPCStats)                         {}
func (copying) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

// TestRule05_AHedgeThatHasWonIsNone makes calls under the context of a stream, or of a value of Do,
// that a hedge has won, and under a context that was derived from it before and holds a copy of its
// metadata.
func TestRule05_AHedgeThatHasWonIsNone(t *testing.T) {
	derived := func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, "more", "1") }
	for name, begin := range map[string]func(*testing.T, *hedge.Scheduler, testpb.TestServiceClient) (ctx,
		copied context.Context){
		"Do": func(t *testing.T, s *hedge.Scheduler, client testpb.TestServiceClient) (ctx, copied context.Context) {
			contexts, _ := hedge.Do(t.Context(), s, "target", "method", func(ctx context.Context) ([2]context.Context, error) {
				if md, _ := metadata.FromOutgoingContext(ctx); len(md) == 0 {
					<-ctx.Done()
					return [2]context.Context{}, ctx.Err()
				}
				_, _ = client.Unary(ctx, &testpb.Request{Id: 1})
				return [2]context.Context{ctx, derived(ctx)}, nil
			})
			return contexts[0], contexts[1]
		},
		"stream": func(t *testing.T, _ *hedge.Scheduler, client testpb.TestServiceClient) (ctx, copied context.Context) {
			st, err := client.ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 2})
			if err == nil {
				_, err = st.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			return st.Context(), derived(st.Context())
		},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					if a.ID == 1 && a.Number == 0 {
						return testserver.Plan{Ending: testserver.Hang}
					}
					return testserver.Plan{}
				}})
			conn := dial(t, cluster, s, grpc.WithStatsHandler(copying{}))
			hedged, plain := testpb.NewTestServiceClient(conn), testpb.NewTestServiceClient(cluster.ClientT(t))
			ctx, copied := begin(t, s, hedged)
			for id, call := range []struct {
				ctx    context.Context
				client testpb.TestServiceClient
			}{{ctx, plain}, {ctx, hedged}, {copied, hedged}} {
				_, err := call.client.Unary(call.ctx, &testpb.Request{Id: uint64(id + 2)})
				records := cluster.RecordsOf(uint64(id + 2))
				if err != nil || len(records) != 1 || records[0].Number != 0 ||
					len(records[0].Metadata.Get("hedge-primary-in-flight")) > 0 {
					t.Errorf("call %d: %v, %+v", id, err, records)
				}
			}
			if r := cluster.RecordsOf(1); r[len(r)-1].Number != 1 {
				t.Errorf("a call of the hedge, while that might still lose: %+v", r)
			}
		})
	}
}
