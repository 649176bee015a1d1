package cost

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestMain makes the test's program the server process too.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "serve") {
		if err := Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestCost(t *testing.T) {
	if all := contestants; longtest.Race {
		t.Cleanup(func() { contestants = all })
		contestants = slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return policy.Named(c.policy).Peer })
	}
	var stdout, log bytes.Buffer
	c := Cost{Server: []string{os.Args[0], "serve"}, Concurrency: []int{1, 4}, Duration: time.Second,
		Slice: 5 * time.Millisecond, Seed: 1, All: true, Profile: t.TempDir() + "/profile"}
	if err := c.Run(t.Context(), &stdout, &log); err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	for _, contestant := range contestants {
		want := 4
		switch {
		case contestant.unaryOnly:
			want = 2
		case contestant.http && contestant.policy != policy.None: // plain HTTP is another label
			want = 6
		}
		if n := strings.Count(stdout.String(), contestant.label+"  "); n != want {
			t.Errorf("%s is in the table %d times, want %d:\n%s", contestant.label, n, want, &stdout)
		}
	}
}

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
