package whatif_test

import (
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/cmd/hedge/whatif"
	"github.com/grpchedge/hedge/internal/longtest"
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

// TestDocs checks that docs/whatif.md shows the program's output.
func TestDocs(t *testing.T) {
	longtest.Computation(t)
	page, err := os.ReadFile("../../../docs/whatif.md")
	if err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	if err := (whatif.Question{}).Answer("latencies.txt", strings.NewReader(logOf("straggler", 50_000)), &answer,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```text\n"+answer.String()+"```\n") {
		t.Errorf("docs/whatif.md does not show\n%s", &answer)
	}
	wrong := strings.NewReader("method,took\n/shop.Cart/Get,5\n")
	err = (whatif.Question{Field: "took"}).Answer("calls.csv", wrong, io.Discard, io.Discard)
	words := strings.Join(strings.Fields(string(page)), " ")
	if err == nil || !strings.Contains(words, "hedge: "+err.Error()+" ") {
		t.Errorf("docs/whatif.md does not show: %v", err)
	}
}
