package workload

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// attemptsOf returns the latencies of several attempts of several requests, in ms.
func attemptsOf(t *testing.T, name string, requests, attempts int) [][]float64 {
	w := Named(name)
	distribution, err := testserver.ParseDistribution(w.Distribution)
	if err != nil {
		t.Fatal(err)
	}
	took := make([][]float64, requests)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 3, DrawByID: true, CountsOnly: true,
			Script: w.Script(distribution, 3, func() time.Time { return began }, 0)})
		client := testpb.NewTestServiceClient(cluster.ClientT(t))
		var group sync.WaitGroup
		for n := range took {
			took[n] = make([]float64, attempts)
			for number := range attempts {
				ctx := t.Context()
				if number > 0 {
					ctx = metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", strconv.Itoa(number))
				}
				group.Go(func() {
					d, _, err := w.Call(ctx, client, CallID(n))
					if err != nil {
						t.Error(err)
					}
					took[n][number] = d.Seconds() * 1e3
				})
			}
		}
		group.Wait()
	})
	return took
}

// wantShare checks a share of n that were drawn by chance.
func wantShare(t *testing.T, what string, got, n int, want float64) {
	t.Helper()
	if sd := math.Sqrt(want * (1 - want) / float64(n)); math.Abs(float64(got)/float64(n)-want) > 4*sd {
		t.Errorf("%s: %d of %d, want a share of %v", what, got, n, want)
	}
}

// TestSizes checks that the attempts of a request have its size in common, that sizes are
// lognormal, and that 2% of attempts take 200 ms more.
func TestSizes(t *testing.T) {
	const requests, attempts = 800, 3
	small, large, stalled := 0, 0, 0
	for _, took := range attemptsOf(t, "sizes", requests, attempts) {
		size := slices.Min(took)
		for _, d := range took {
			switch more := d - size; {
			case more > 190 && more < 210:
				stalled++
			case more > 15: // of the two exponential parts
				t.Errorf("attempts of one request take %v ms", took)
			}
		}
		if size < 5 {
			small++
		}
		if size > 50 {
			large++
		}
	}
	// The least of three attempts takes a third of 1 ms in the mean beyond the size.
	wantShare(t, "under 5 ms", small, requests, math.Erfc(math.Log(5/4.667)/math.Sqrt2)/2)
	wantShare(t, "over 50 ms", large, requests, math.Erfc(math.Log(49.667/5)/math.Sqrt2)/2)
	wantShare(t, "stalled", stalled, requests*attempts, 0.02)
}
