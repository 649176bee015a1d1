package suite

import (
	"slices"
	"strings"
	"testing"
)

func TestParseList(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{name: "a test", text: "net/http TestA: it counts: requests\n", want: "net/http TestA"},
		{name: "a comment and a blank line", text: "# why: so\n\n"},
		{name: "a line of one mode", text: "elsewhere test Test/A: it counts", want: "elsewhere test Test/A"},
		{name: "a line of an unknown mode", text: "nowhere test Test/A: it counts", want: "error"},
		{name: "a test without a reason", text: "test Test/A: \n", want: "error"},
		{name: "a test without a colon", text: "test Test/A it counts\n", want: "error"},
		{name: "a test listed twice", text: "test Test/A: it counts\ntest Test/A: again\n", want: "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := ParseList(c.text, "elsewhere")
			var got []string
			for name := range list {
				got = append(got, name)
			}
			if err != nil {
				got = []string{"error"}
			}
			if strings.Join(got, ",") != c.want {
				t.Errorf("the list has %q, error %v; it must have %q", got, err, c.want)
			}
		})
	}
}

func TestOf(t *testing.T) {
	list := map[string]string{"test Test/A": "it counts", "elsewhere test Test/B": "it counts channels"}
	if got := Of(list, "elsewhere"); len(got) != 1 || got["test Test/B"] != "it counts channels" {
		t.Errorf("the lines of elsewhere are %q, want the one of Test/B", got)
	}
}

// The output of two forms: the tests as functions, and as subtests of one function.
func TestParse(t *testing.T) {
	const out = `=== RUN   TestA
=== RUN   TestA/h1
    a_test.go:1: 2 requests
--- FAIL: TestA (0.01s)
    --- FAIL: TestA/h1 (0.01s)
=== RUN   TestB
--- SKIP: TestB (0.00s)
=== RUN   Test
=== RUN   Test/C
=== RUN   Test/C/deep
--- PASS: Test (0.00s)
    --- PASS: Test/C (0.00s)
        --- PASS: Test/C/deep (0.00s)
`
	functions, subtests := Tests{}, Tests{Parent: "Test"}
	r := functions.parse(out + "FAIL\nhedges: 3 in 4 requests\n")
	if !slices.Equal(r.failed, []string{"TestA"}) || !slices.Equal(r.passed, []string{"Test"}) || r.skipped != 1 || r.all != 3 {
		t.Errorf("functions: %+v, want TestA failed, Test passed, one skipped, and three with subtests passed", r)
	}
	if r.hedges != "3 in 4 requests" || !strings.Contains(r.output["TestA"], "2 requests") {
		t.Errorf("functions: hedges %q and output %q, want both", r.hedges, r.output)
	}
	if r := subtests.parse(out); !slices.Contains(r.passed, "Test/C") || slices.Contains(r.passed, "Test") {
		t.Errorf("subtests: %q passed, want Test/C and not Test", r.passed)
	}
}

func TestParse_Timeout(t *testing.T) {
	r := (&Tests{}).parse("=== RUN   TestA\n=== RUN   TestB\npanic: test timed out after 5m0s\n\trunning tests:\n" +
		"\t\tTestA (5m0s)\n\t\tTestA/h1 (4m59s)\n\ngoroutine 7 [running]:\n\tmain.TestB (1s)\n")
	if !slices.Equal(r.running, []string{"TestA"}) {
		t.Errorf("%q ran at the timeout, want TestA alone", r.running)
	}
}

func TestEnding(t *testing.T) {
	for out, want := range map[string]bool{
		"ok\nPASS\n":                        true,
		"FAIL\nhedges: 3 in 4 requests\n":   true,
		"FAIL\npanic: close of nil channel": false,
		"--- PASS: TestA (0.00s)\n":         false,
	} {
		if got := ending.MatchString(out); got != want {
			t.Errorf("ended after %q: %v, want %v", out, got, want)
		}
	}
}
