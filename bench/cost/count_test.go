package cost

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCount replaces Valgrind by a program that counts 1,000 instructions, and 100 more per call.
func TestCount(t *testing.T) {
	folder := t.TempDir()
	script := `#!/bin/sh
while [ "$1" != -calls ]; do shift; done
echo "==1== I refs:        1,$(($2 / 10))00" >&2
echo 0.25
`
	if err := os.WriteFile(filepath.Join(folder, "valgrind"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c := Count{Server: []string{os.Args[0], "serve"}, Client: []string{os.Args[0]}, Concurrency: []int{1, 16}, Calls: 50}
	for _, tc := range []struct{ name, path, want string }{
		{"valgrind", folder, `stream +16 +hedge, never due +10 +1\.000 +0\.25`},
		{"no valgrind", t.TempDir(), `^Valgrind is not installed, so no instructions are counted\.\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PATH", tc.path)
			var printed, log bytes.Buffer
			if err := c.Run(t.Context(), &printed, &log); err != nil || !regexp.MustCompile(tc.want).Match(printed.Bytes()) {
				t.Errorf("%v, and no line like %q in\n%s", err, tc.want, &printed)
			}
		})
	}
}

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
