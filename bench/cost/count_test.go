package cost

import (
	"os"
	"strings"
	"testing"
)

// TestCounted makes the calls of each client that is counted.
func TestCounted(t *testing.T) {
	to, stop, err := startServer(t.Context(), []string{os.Args[0], "serve"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, kind := range []string{"unary", "stream"} {
		for _, label := range counted {
			c := Counted{Target: to.grpc, Kind: kind, Label: label, Concurrency: 4, Calls: 100}
			var printed strings.Builder
			err := c.Run(t.Context(), &printed)
			if err != nil || label == neverDue && printed.String() != "0.00\n" ||
				!strings.Contains(label, "hedge") && printed.String() != "none\n" {
				t.Errorf("%s calls, %s: %v, %q hedges per 100 calls; want none unless it is due", kind, label, err, &printed)
			}
		}
	}
}
