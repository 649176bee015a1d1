package testserver_test

import (
	"testing"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// What recording costs: the difference between a cluster that records and one
// that only counts.
func BenchmarkUnary(b *testing.B) {
	for name, countsOnly := range map[string]bool{"records": false, "counts": true} {
		b.Run(name, func(b *testing.B) {
			cluster := testserver.StartT(b, testserver.Config{CountsOnly: countsOnly})
			client := testpb.NewTestServiceClient(cluster.ClientT(b))
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for id := uint64(0); pb.Next(); id++ {
					if _, err := client.Unary(b.Context(), &testpb.Request{Id: id}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
