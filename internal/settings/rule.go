package settings

import "slices"

// Rule is options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	OwnBudget bool // it is for methods, and sets the budget
}

func (c *Config) ForTarget(name string) *Config {
	return c.apply(c.TargetRules, func(p string) bool { return matchName(p, name) }, compareNames)
}

// ForMethod applies the rules for a method to the configuration of its target, which was made from
// c. The rules for the method come first, then those for the method at this target, which win.
func (c *Config) ForMethod(target *Config, method string) *Config {
	matches := func(p string) bool { return matchAny([]string{p}, method) }
	nested := target.MethodRules[len(c.MethodRules):] // WithMethodOptions appends, so the target's rules follow c's
	return target.apply(c.MethodRules, matches, comparePatterns).apply(nested, matches, comparePatterns)
}

// apply applies the rules that match, the most specific last, to a copy of the configuration.
func (c *Config) apply(rules []Rule, matches func(pattern string) bool, compare func(a, b string) int) *Config {
	rules = slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !matches(rule.Pattern) })
	if len(rules) == 0 {
		return c
	}
	slices.SortStableFunc(rules, func(a, b Rule) int { return compare(a.Pattern, b.Pattern) })
	with := *c
	for _, rule := range rules {
		rule.Apply(&with)
		with.Applied = append(with.Applied, rule.Pattern)
		with.OwnBudget = with.OwnBudget || rule.OwnBudget
	}
	return &with
}
