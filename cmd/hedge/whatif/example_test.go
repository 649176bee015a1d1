package whatif_test

import (
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/grpchedge/hedge/cmd/hedge/whatif"
	"github.com/grpchedge/hedge/internal/testserver"
)

// logOf is a log of calls drawn from a distribution, one latency per line.
func logOf(name string, calls int) string {
	distribution, err := testserver.ParseDistribution(name)
	if err != nil {
		log.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var lines strings.Builder
	for range calls {
		lines.WriteString(distribution.Draw(random).String() + "\n")
	}
	return lines.String()
}

func Example() {
	calls := strings.NewReader(logOf("straggler", 50_000))
	if err := (whatif.Question{}).Answer("latencies.txt", calls, os.Stdout, io.Discard); err != nil {
		log.Fatal(err)
	}
	// Output:
	// latencies.txt: 50,000 calls without hedging
	//  budget    delay  chance  hedges      p50      p99  ratio    p99.9  ratio  extra load
	// ──────────────────────────────────────────────────────────────────────────────────────
	//  none                             4.77 ms  63.1 ms         98.4 ms
	//  1%      59.7 ms     78%       1  4.77 ms  62.2 ms  0.987  79.7 ms  0.810        0.9%
	//  2%      48.9 ms     91%       1  4.77 ms  53.4 ms  0.847  67.9 ms  0.690        1.9%
	//  5%      15.2 ms     96%       1  4.77 ms  22.4 ms  0.355  57.2 ms  0.581        4.7%
	//  10%     9.09 ms    100%       2  4.77 ms  15.9 ms  0.253  23.4 ms  0.238        9.2%
	//  20%     7.31 ms    100%       2  4.77 ms  14.2 ms  0.226  20.0 ms  0.203       17.0%
	//
	// A call that has no answer after the delay is sent a second time, with the chance shown. Where two hedges are allowed, a third
	// attempt follows after as long again, with the same chance. A ratio is the percentile with hedging by the one without.
	//
	// This assumes independence: the second attempt of a request takes what any call of the table might take, however slow the
	// first one is. That is so where servers are slow by chance, or one at a time. Where a request is slow on every server, or all
	// servers are slow at once, hedging gains less than this. It is also assumed that hedges slow no server down.
	// Calls of several methods or sizes differ by more than chance. Tell them apart with -by.
}
