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

func TestCost_NoServer(t *testing.T) {
	for _, command := range []string{"false", "no such program"} {
		c := Cost{Server: []string{command}, Concurrency: []int{1}, Duration: time.Second, Slice: time.Millisecond}
		if err := c.Run(t.Context(), new(bytes.Buffer), new(bytes.Buffer)); err == nil {
			t.Errorf("%s: no error", command)
		}
	}
}

func TestCostRounds(t *testing.T) {
	for _, tc := range []struct {
		duration, slice time.Duration
		concurrency     int
	}{
		{54 * time.Second, 50 * time.Millisecond, 3}, {time.Second, time.Minute, 1}, {10 * time.Second, time.Millisecond, 2},
	} {
		c := Cost{Duration: tc.duration, Slice: tc.slice, Concurrency: make([]int, tc.concurrency)}
		rounds := c.rounds(c.cells())
		took := time.Duration(rounds*4*2*tc.concurrency) * tc.slice
		if rounds%2 != 1 || took > tc.duration && rounds > 3 {
			t.Errorf("%+v: %d rounds, which take %v", tc, rounds, took)
		}
	}
}

func TestScoreTexts(t *testing.T) {
	at := func(calls int64, busy time.Duration) slice {
		return slice{calls: calls, took: time.Second, busy: busy * time.Millisecond}
	}
	plain := score{label: "plain", slices: []slice{at(1000, 100), at(1000, 200), at(1000, 100)}}
	s := score{label: "x", slices: []slice{at(1000, 110), at(800, 200), at(900, 99)},
		hedges: func() float64 { return 0.5 }}
	if got, want := strings.Join(s.texts(&plain), " "), "x 110.0 1.100 1.100–1.250 0.900 0.50 0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := strings.Join(plain.texts(&plain), " "), "plain 100.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
