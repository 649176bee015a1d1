package settings

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Rule has the options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	OwnBudget bool // it is for methods, and sets the budget
}

// Index finds the patterns that match a method or a request among thousands, and keeps the
// configurations of targets. The zero Index has no patterns.
type Index struct {
	byPrefix map[string][]*pattern
	longest  int      // prefix
	targets  sync.Map // the rules for targets that apply → *Config
}

// add adds patterns with these texts.
func (x *Index) add(with pattern, texts ...string) {
	for _, text := range texts {
		p := with.parse(text)
		x.byPrefix[p.prefix] = append(x.byPrefix[p.prefix], p)
		x.longest = max(x.longest, len(p.prefix))
	}
}

// near returns the patterns with a prefix of a path.
func (x *Index) near(path string) iter.Seq[*pattern] {
	return func(yield func(*pattern) bool) {
		for end := 1; end <= min(len(path), x.longest); end++ {
			if end < len(path) && path[end-1] != '/' {
				continue
			}
			for _, p := range x.byPrefix[path[:end]] {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// match returns the options with patterns that match a method, and the rules, the most specific
// last.
func (x *Index) match(method string, http bool) (uses use, rules []Rule) {
	n := parseName(method, http)
	var found []*pattern
	for p := range x.near(n.path(n.samples[0])) {
		if p.covers(n) {
			if uses |= p.use; p.rule != nil {
				found = append(found, p)
			}
		}
	}
	slices.SortStableFunc(found, (*pattern).compare)
	for _, p := range found {
		rules = append(rules, *p.rule)
	}
	return uses, rules
}

// Prepare sets Index and Compared. It returns an error if patterns conflict.
func (c *Config) Prepare() error {
	x := &Index{byPrefix: map[string][]*pattern{}}
	x.add(pattern{use: readOnly}, c.ReadOnly...)
	x.add(pattern{use: methods}, c.Methods...)
	all := slices.Concat(c.ReadOnly, c.Methods)
	for i := range c.MethodRules {
		rule := &c.MethodRules[i]
		x.add(pattern{rule: rule}, rule.Pattern)
		all = append(all, rule.Pattern)
	}
	x.add(pattern{use: waitForMessage}, c.WaitForMessage...)
	x.add(pattern{use: singleRequest}, c.SingleRequest...)
	c.Index, c.Compared = x, fmt.Sprint(Without(c.Options, nil))
	return checkConflicts(all)
}

// ForTarget applies the rules for a target. In their patterns only * is special, and matches any
// characters. Targets with the same rules share a configuration.
func (c *Config) ForTarget(name string) *Config {
	base := *c
	base.HTTP = IsHTTP(name)
	var rules []Rule
	key := strconv.AppendBool(nil, base.HTTP)
	for i, rule := range c.TargetRules {
		if matchName(rule.Pattern, name) {
			rules, key = append(rules, rule), strconv.AppendInt(append(key, ' '), int64(i), 10)
		}
	}
	if len(rules) == 0 && !base.HTTP {
		return c
	}
	if known, ok := c.Index.targets.Load(string(key)); ok {
		return known.(*Config)
	}
	rank := func(r Rule) []int {
		wild := strings.Count(r.Pattern, "*")
		return []int{-min(wild, 1), len(r.Pattern) - wild}
	}
	slices.SortStableFunc(rules, func(a, b Rule) int {
		return cmp.Or(slices.Compare(rank(a), rank(b)), strings.Compare(a.Pattern, b.Pattern))
	})
	with := base.apply(rules)
	c.Index.targets.Store(string(key), with)
	return with
}

// matchName compiles no regexp: it runs for each rule and each new method.
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
// c: its hedgingPolicy, then the rules for the method. The last one prevails.
func (c *Config) ForMethod(target *Config, method string) *Config {
	_, rules := c.Index.match(method, target.HTTP)
	return target.withPolicy(method).apply(rules)
}

// apply applies rules, in this order, to a copy of the configuration: see hedge.WithMethodOptions.
func (c *Config) apply(rules []Rule) *Config {
	if len(rules) == 0 {
		return c
	}
	with := *c
	for _, rule := range rules {
		rule.Apply(&with)
		with.Applied = append(with.Applied, rule.Pattern)
		with.OwnBudget = with.OwnBudget || rule.OwnBudget
	}
	return &with
}

// Unused returns the patterns that match none of the methods, given as pairs of target and method,
// and the patterns of targets that match none of their targets, sorted.
func (c *Config) Unused(methods [][2]string) []string {
	used, targets := map[string]bool{}, map[string]bool{}
	for _, m := range methods {
		targets[m[0]] = true
		n := parseName(m[1], IsHTTP(m[0]))
		for p := range c.Index.near(n.path(n.samples[0])) {
			used[p.text] = used[p.text] || p.covers(n)
		}
	}
	for target := range targets {
		for _, rule := range c.TargetRules {
			used[rule.Pattern] = used[rule.Pattern] || matchName(rule.Pattern, target)
		}
	}
	var unused []string
	for _, patterns := range c.Index.byPrefix {
		for _, p := range patterns {
			unused = append(unused, p.text)
		}
	}
	for _, rule := range c.TargetRules {
		unused = append(unused, rule.Pattern)
	}
	slices.Sort(unused)
	return slices.DeleteFunc(slices.Compact(unused), func(p string) bool { return used[p] })
}
