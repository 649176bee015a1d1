package hedge_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocs_RulesNameTheirTests compares the tests that docs/rules.md names with those that there are, in all modules.
func TestDocs_RulesNameTheirTests(t *testing.T) {
	page, err := os.ReadFile("docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string][]string{} // by the rule's two digits
	item := regexp.MustCompile(`(?s)\n(\d+)\. .*?Tests: (.*?)\n(?:\n|\d|$)`)
	name := regexp.MustCompile("`(\\w+)`")
	// An item ends where the next begins, so the matches would overlap: each is searched for after the number before.
	for rest := string(page); ; {
		m := item.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		rule := fmt.Sprintf("%02s", rest[m[2]:m[3]])
		for _, n := range name.FindAllStringSubmatch(rest[m[4]:m[5]], -1) {
			named[rule] = append(named[rule], n[1])
		}
		rest = rest[m[5]:]
	}
	for rule, tests := range ruleTests(t) {
		if got := named[rule]; !slices.Equal(got, tests) {
			t.Errorf("docs/rules.md has for rule %s\n\t%s\nwhere there are\n\t`%s`", rule, strings.Join(got, ", "), strings.Join(tests, "`, `"))
		}
		delete(named, rule)
	}
	for rule, tests := range named {
		t.Errorf("docs/rules.md has for rule %s tests that are gone: %v", rule, tests)
	}
}

// TestDocs_OneBound finds the same sentence wherever the bound on the budget is stated.
func TestDocs_OneBound(t *testing.T) {
	const bound = "In any interval, all attempts beyond the first of each call together cost at most the budget's share of what the " +
		"interval's calls cost, plus one burst, plus two hedges, plus one hedge for each hedge that wins."
	for _, path := range []string{"README.md", "docs/rules.md", "docs/budget.md", "budget/budget.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if words := strings.Fields(strings.ReplaceAll(string(text), "\n//", "\n")); !strings.Contains(strings.Join(words, " "), bound) {
			t.Errorf("%s does not say: %s", path, bound)
		}
	}
}

// ruleTests returns the names of the tests that are named after rules, sorted, by the rule's two digits.
func ruleTests(t *testing.T) map[string][]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func Test(Rule(\d\d)_\w+)`)
	tests := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(source, -1) {
			tests[string(m[2])] = append(tests[string(m[2])], string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rule, names := range tests {
		slices.Sort(names)
		tests[rule] = slices.Compact(names)
	}
	return tests
}
