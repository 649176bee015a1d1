package settings

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rule has the options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	OwnBudget bool // it is for methods, and sets the budget
}

// ForTarget applies the rules for a target. In their patterns only * is special, and matches any
// characters.
func (c *Config) ForTarget(name string) *Config {
	matches := func(p string) bool { return matchName(p, name) }
	return c.apply(c.TargetRules, matches, func(p string) int { return len(p) - strings.Count(p, "*") })
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
	matches := func(p string) bool { return firstMatch([]string{p}, method) != "" }
	nested := target.MethodRules[len(c.MethodRules):] // WithMethodOptions appends, so the target's rules follow c's
	return target.apply(c.MethodRules, matches, literals).apply(nested, matches, literals)
}

// apply applies the rules that match, the most specific last, to a copy of the configuration: see
// hedge.WithMethodOptions.
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

// CheckPattern returns an error if p is not a pattern of full method names, "/service/method", in
// the syntax of [path.Match].
func CheckPattern(p string) error {
	service, method, ok := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if !strings.HasPrefix(p, "/") || !ok || service == "" || method == "" || strings.Contains(method, "/") {
		return errors.New(`must have the form "/service/method"`)
	}
	if !utf8.ValidString(p) {
		return errors.New("must be valid UTF-8")
	}
	if _, err := path.Match(p, ""); err != nil {
		return fmt.Errorf("malformed pattern: %w", err)
	}
	return nil
}

func matchAny(patterns []string, fullMethod string) bool {
	return firstMatch(patterns, fullMethod) != ""
}

// firstMatch returns the first pattern that matches a full method name, or "".
func firstMatch(patterns []string, fullMethod string) string {
	for _, p := range patterns {
		if ok, _ := path.Match(p, fullMethod); ok {
			return p
		}
	}
	return ""
}

// PatternOf returns the first pattern of WithReadOnlyMethods or WithMethods that matches a full
// method name, or "".
func (c *Config) PatternOf(fullMethod string) string {
	return cmp.Or(firstMatch(c.ReadOnly, fullMethod), firstMatch(c.Methods, fullMethod))
}

// literals counts the characters of a pattern that stand for themselves. Characters in brackets do
// not. It is called under the registry's lock.
func literals(p string) (n int) {
	inClass := false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case inClass && c != '\\':
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '\\':
			i++
			if !inClass {
				n++
			}
		case c != '*' && c != '?':
			n++
		}
	}
	return n
}
