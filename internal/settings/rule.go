package settings

import (
	"cmp"
	"slices"
	"strings"
)

// Rule is options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	OwnBudget bool // it is for methods, and sets the budget
}

func (c *Config) ForTarget(name string) *Config {
	return c.apply(c.TargetRules, func(p string) bool { return matchName(p, name) }, literalsOfName)
}

// ForMethod applies the rules for a method to the configuration of its target, which was made from
// c. The rules for the method come first, then those for the method at this target, which win.
func (c *Config) ForMethod(target *Config, method string) *Config {
	matches := func(p string) bool { return matchAny([]string{p}, method) }
	nested := target.MethodRules[len(c.MethodRules):] // WithMethodOptions appends, so the target's rules follow c's
	return target.apply(c.MethodRules, matches, literals).apply(nested, matches, literals)
}

// apply applies the rules that match, the most specific last, to a copy of the configuration. A
// pattern without wildcards is the most specific. Of two others it is the one with more literal
// characters, and then the one that is later in the alphabet.
func (c *Config) apply(rules []Rule, matches func(pattern string) bool, literals func(pattern string) int) *Config {
	rules = slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !matches(rule.Pattern) })
	if len(rules) == 0 {
		return c
	}
	wildcards := func(p string) int { return min(len(p)-literals(p), 1) }
	slices.SortStableFunc(rules, func(a, b Rule) int {
		return cmp.Or(
			cmp.Compare(wildcards(b.Pattern), wildcards(a.Pattern)),
			cmp.Compare(literals(a.Pattern), literals(b.Pattern)),
			strings.Compare(a.Pattern, b.Pattern),
		)
	})
	with := *c
	for _, rule := range rules {
		rule.Apply(&with)
		with.Applied = append(with.Applied, rule.Pattern)
		with.OwnBudget = with.OwnBudget || rule.OwnBudget
	}
	return &with
}
