package settings

import (
	"slices"

	"github.com/grpchedge/hedge/internal/pattern"
)

// Rule is options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	Set       []string // the names of the options
	OwnBudget bool     // one of them sets the budget
}

// Ruled is a Config with the rules for one target or method applied.
type Ruled struct {
	*Config
	Applied   []string // patterns, the most specific last
	OwnBudget bool     // a rule for the method sets its budget
}

// ForTarget applies the rules for a target.
func (c *Config) ForTarget(name string) Ruled {
	r := Ruled{Config: c}
	r.apply(c.TargetRules, func(p string) bool { return pattern.Matches(p, name) }, pattern.CompareNames)
	return r
}

// ForMethod applies the rules for a method to r, the configuration of its target. r was made from c. The rules for the method
// come first, then those for the method at this target, which win.
func (r Ruled) ForMethod(c *Config, method string) Ruled {
	matches := func(p string) bool { return pattern.Any([]string{p}, method) }
	nested := r.MethodRules[len(c.MethodRules):] // WithMethodOptions appends, so the rules of the target follow those of c
	own := r.apply(c.MethodRules, matches, pattern.Compare)
	r.OwnBudget = r.apply(nested, matches, pattern.Compare) || own
	return r
}

// apply applies those of the rules that match, the most specific last, to a copy of the configuration. It reports whether
// one of them sets the budget.
func (r *Ruled) apply(rules []Rule, matches func(pattern string) bool, compare func(a, b string) int) (budget bool) {
	rules = slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !matches(rule.Pattern) })
	if len(rules) == 0 {
		return false
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return compare(a.Pattern, b.Pattern) })
	c := *r.Config
	for _, rule := range rules {
		rule.Apply(&c)
		r.Applied = append(r.Applied, rule.Pattern)
		budget = budget || rule.OwnBudget
	}
	r.Config = &c
	return budget
}
