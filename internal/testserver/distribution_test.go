package testserver_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// The quantiles, in ms, follow from the formulas of the distributions.
func TestParseDistribution(t *testing.T) {
	for s, quantiles := range map[string]map[float64]float64{
		"straggler":           {0.5: 4.8, 0.9: 8.4, 0.99: 64},
		"fan-out":             {0.5: 4.7, 0.9: 7.7, 0.995: 46},
		"ttft":                {0.5: 15.7, 0.75: 20.2, 0.9: 198.5, 0.99: 242},
		"grpc-java":           {0.5: 1.9, 0.925: 2001.8, 0.97: 5001.8, 0.995: 10001.8},
		"slow-one-percent":    {0.5: 6.63, 0.95: 11.9, 0.9935: 800},
		"pareto":              {0.5: 4.76, 0.9: 13.9, 0.99: 64.6},
		"constant:5ms":        {0.5: 5},
		"uniform:600ms,1s":    {0.25: 700, 0.75: 900},
		"exponential:10ms":    {0.5: 6.93, 0.9: 23},
		"lognormal: 5ms, 2ms": {0.5: 4.64, 0.9: 7.56},
		"pareto:3ms,5":        {0.5: 3.45, 0.9: 4.75},
		"straggler:1%,10":     {0.5: 4.66, 0.9: 7.8},
	} {
		distribution, err := testserver.ParseDistribution(s)
		if err != nil {
			t.Fatal(err)
		}
		rng, draws := rand.New(rand.NewPCG(1, 2)), make([]time.Duration, 30_000)
		for i := range draws {
			draws[i] = distribution.Draw(rng)
		}
		slices.Sort(draws)
		for q, want := range quantiles {
			got := float64(draws[int(q*float64(len(draws)))]) / float64(time.Millisecond)
			if math.Abs(got/want-1) > .05 {
				t.Errorf("%s: quantile %v is %.4g ms, want %v", s, q, got, want)
			}
		}
	}
	const unknown = `unknown distribution "ttft:5ms": want one of`
	if _, err := testserver.ParseDistribution("ttft:5ms"); err == nil || !strings.HasPrefix(err.Error(), unknown) {
		t.Errorf("the error is %v, want %s", err, unknown)
	}
}

// TestCheckFindsWrongReplies spoils each part of a reply. All tests that count wrong replies, the
// benchmark's workloads too, rely on Check.
func TestCheckFindsWrongReplies(t *testing.T) {
	client := testpb.NewTestServiceClient(testserver.StartT(t, testserver.Config{}).ClientT(t))
	req := &testpb.Request{Id: 7, ReplyBytes: 100}
	for name, spoil := range map[string]func(*testpb.Reply){
		"":         func(*testpb.Reply) {},
		"id":       func(r *testpb.Reply) { r.Id++ },
		"sequence": func(r *testpb.Reply) { r.Sequence++ },
		"backend":  func(r *testpb.Reply) { r.Backend++ },
		"attempt":  func(r *testpb.Reply) { r.Attempt++ },
		"payload":  func(r *testpb.Reply) { r.Payload[99]++ },
		"size":     func(r *testpb.Reply) { r.Payload = r.Payload[:99] },
		"emptied":  func(r *testpb.Reply) { r.Reset() },
	} {
		reply, err := client.Unary(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		spoil(reply)
		if err := testserver.Check(req, 0, reply); (err == nil) != (name == "") {
			t.Errorf("a reply with a wrong %q: %v", name, err)
		}
	}
}
