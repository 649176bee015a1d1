package whatif_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/cmd/hedge/whatif"
)

// TestDocs checks that docs/whatif.md shows the program's output.
func TestDocs(t *testing.T) {
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
	if err == nil || !strings.Contains(string(page), "hedge: "+err.Error()+"\n") {
		t.Errorf("docs/whatif.md does not show: %v", err)
	}
}
