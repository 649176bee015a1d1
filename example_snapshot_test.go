package hedge_test

import (
	"bytes"
	"fmt"

	"github.com/DataDog/sketches-go/ddsketch"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// A new scheduler starts with the latencies of another one, without a warm-up.
func ExampleWithSnapshot() {
	old := must(hedge.New(hedge.WithAllMethods()))
	for range 50 {
		doOnce(old, "/pkg.Svc/Get")
	}
	var file bytes.Buffer
	if err := old.WriteSnapshot(&file); err != nil {
		panic(err)
	}

	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithSnapshot(&file)))
	doOnce(s, "/pkg.Svc/Get")
	fmt.Println(old.Stats().Warmup, "calls without hedging before,", s.Stats().Warmup, "now")

	_, err := hedge.New(hedge.WithAllMethods(), hedge.WithSnapshot(&file)) // a reader is read once
	fmt.Println(err)
	// Output:
	// 20 calls without hedging before, 0 now
	// hedge: WithSnapshot: empty
}

// Another tool reads a snapshot.
func ExampleScheduler_WriteSnapshot() {
	s := must(hedge.New(hedge.WithAllMethods()))
	for range 50 {
		doOnce(s, "/pkg.Svc/Get")
	}
	var file bytes.Buffer
	if err := s.WriteSnapshot(&file); err != nil {
		panic(err)
	}

	var snapshot snapshotpb.Snapshot
	if err := proto.Unmarshal(file.Bytes(), &snapshot); err != nil {
		panic(err)
	}
	for _, target := range snapshot.Targets {
		for _, method := range target.Methods {
			sketch, err := ddsketch.FromProto(method.Knowledge.Latency)
			if err != nil {
				panic(err)
			}
			p99, err := sketch.GetValueAtQuantile(0.99)
			if err != nil {
				panic(err)
			}
			fmt.Println(target.Name, method.Name, sketch.GetCount(), "calls, p99 below a second:", p99 < 1e9)
		}
	}
	// Output: dns:///example /pkg.Svc/Get 50 calls, p99 below a second: true
}
