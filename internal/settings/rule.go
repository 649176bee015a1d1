package settings

import (
	"cmp"
	"slices"
	"strings"
)

// Rule has the options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	OwnBudget bool     // it is for methods, and sets the budget
	Methods   []string // it is for targets: the patterns of its rules for methods
}

// ForTarget applies the rules for a target. In their patterns only * is special, and matches any
// characters.
func (c *Config) ForTarget(name string) *Config {
	if IsHTTP(name) {
		with := *c
		c, with.HTTP = &with, true
	}
	return c.apply(c.TargetRules, func(p string) bool { return matchName(p, name) }, func(p string) []int {
		wild := strings.Count(p, "*")
		return []int{-min(wild, 1), len(p) - wild}
	})
}

// matchName compiles no regexp: it runs for each rule and each new method, with Registry.mu held.
func matchName(pattern, name string) bool {
	part, rest, more := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, part)
	for ok && more {
		if part, rest, more = strings.Cut(rest, "*"); !more {
			return strings.HasSuffix(name, part)
		}
		_, name, ok = strings.Cut(name, part)
	}
	return ok && name == ""
}

// ForMethod applies the rules for a method to the configuration of its target, which was made from
// c. The rules for the method come first, then those for the method at this target, which win.
func (c *Config) ForMethod(target *Config, method string) *Config {
	match := func(p string) bool { return matches(p, method, target.HTTP) }
	nested := target.MethodRules[len(c.MethodRules):] // WithMethodOptions appends, so the target's rules follow c's
	return target.apply(c.MethodRules, match, specificity).apply(nested, match, specificity)
}

// apply applies the rules that match, the most specific last, to a copy of the configuration: see
// hedge.WithMethodOptions.
func (c *Config) apply(rules []Rule, matches func(pattern string) bool, specificity func(string) []int) *Config {
	rules = slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !matches(rule.Pattern) })
	if len(rules) == 0 {
		return c
	}
	slices.SortStableFunc(rules, func(a, b Rule) int {
		return cmp.Or(slices.Compare(specificity(a.Pattern), specificity(b.Pattern)), strings.Compare(a.Pattern, b.Pattern))
	})
	with := *c
	for _, rule := range rules {
		rule.Apply(&with)
		with.Applied = append(with.Applied, rule.Pattern)
		with.OwnBudget = with.OwnBudget || rule.OwnBudget
	}
	return &with
}
