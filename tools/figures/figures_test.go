package main

import (
	"strings"
	"testing"
)

const output = `=== RUN   TestLimit/400_a_second
    limit_test.go:1: seed 0: of 1000 calls fail 10, p99 18.96ms
    limit_test.go:1: seed 1: of 1000 calls fail 30, p99 19.24ms
=== RUN   TestLimit/500_a_second
    limit_test.go:1: 0.923 are sent, in 3653 bytes
| a | 1.00 |
`

// TestFigures compares pages with an output. The figures of the last line of each are stale, or
// cannot be found.
func TestFigures(t *testing.T) {
	for _, tc := range []struct{ page, list, state string }{
		{"p99 is 19 ms, or **19.1 ms** by", "p99 is #, or # by\n\tmean /400.*p99 #\n\tmean /400.*p99 #", "fresh"},
		{"p99 is 18.9 ms", "p99 is #\n\tmean /400.*p99 #", "stale"},
		{"p99 is 18.9 ms", "within 2%\np99 is #\n\tmean /400.*p99 #", "fresh"},
		{"19.0 to\n 19.2 ms", "# to #\n\t/400.*p99 #", "fresh"},
		{"19.0 to 19.2 s", "# to #\n\t/400.*p99 #", "stale"},
		{"at most 19.2 ms", "at most #\n\tmost p99 #", "fresh"},
		{"at least 19.2 ms", "at least #\n\tleast p99 #", "stale"},
		{"2.0% fail", "# fail\n\tratio sum of # calls fail #", "fresh"},
		{"2.0% fail", "# fail\n\tratio of # calls fail #", "failed: the page has 1 figures"},
		{"92% are sent, in 4 KB", "# are sent, in #\n\tshare /500.*: # are\n\tin #", "fresh"},
		{"19 ms", "p99 is #\n\tp99 #", "failed: the page has it 0 times"},
		{"19 ms", "#\n\tp98 #", "failed: the output has no such line"},
		{"| x | y |\n|---|---|\n| a | 1.00 |\n", "| x | y |\n\trows", "fresh"},
		{"| x | y |\n|---|---|\n| b | 1.00 |\n", "| x | y |\n\trows", "stale"},
	} {
		list, err := parse("page p\nrun c\n" + tc.list)
		if err != nil {
			t.Fatal(err)
		}
		claim := list[0].claims[0]
		_, figures, err := claim.find(tc.page)
		state, fresh := "fresh", true
		if err == nil {
			if _, fresh, err = claim.compare(tc.page, figures, named(output), list[0].within); !fresh {
				state = "stale"
			}
		}
		if err != nil {
			state = "failed: " + err.Error()
		}
		if !strings.HasPrefix(state, tc.state) {
			t.Errorf("%q by %q: %s, want %s", tc.page, tc.list, state, tc.state)
		}
	}
	for _, list := range []string{"p99 #", "run c\n\tp99", "run c\nwithin x", "run c\np99\n\t(p99", "run c\np99"} {
		if _, err := parse(list); err == nil {
			t.Errorf("%q is not an error", list)
		}
	}
}
