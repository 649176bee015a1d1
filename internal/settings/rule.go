package settings

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Rule has the options for the targets or the methods that match a pattern.
type Rule struct {
	Pattern   string
	Apply     func(*Config)
	OwnBudget bool     // it is for methods, and sets the budget
	Methods   []string // it is for targets: the patterns of its rules for methods
}

// Index finds the rules for a method among thousands, and keeps the configurations of targets. A nil
// Index has no rules.
type Index struct {
	all     []Rule            // for methods
	byName  map[string][]Rule // by the longest of: method, "/service/", "" that all methods begin with
	targets sync.Map          // the rules for targets that apply → *Config
}

// NewIndex returns the index of rules for methods.
func NewIndex(methods []Rule) *Index {
	x := &Index{all: methods, byName: map[string][]Rule{}}
	for _, rule := range methods {
		key, wild := rule.Pattern, strings.IndexAny(rule.Pattern, `*?[\`)
		if isRoute(key) {
			key = ""
		} else if wild >= 0 {
			key = key[:strings.LastIndexByte(key[:wild], '/')+1]
			if key == "/" {
				key = ""
			}
		}
		x.byName[key] = append(x.byName[key], rule)
	}
	return x
}

// matching returns the rules for a method. For HTTP any rule may match.
func (x *Index) matching(method string, http bool) (rules []Rule) {
	if x == nil {
		return nil
	}
	among := x.all
	if !http && !isRoute(method) {
		service := method[:strings.LastIndexByte(method, '/')+1]
		among = slices.Concat(x.byName[method], x.byName[service], x.byName[""])
	}
	for _, rule := range among {
		if matches(rule.Pattern, method, http) {
			rules = append(rules, rule)
		}
	}
	return rules
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
	if c.Index != nil {
		if known, ok := c.Index.targets.Load(string(key)); ok {
			return known.(*Config)
		}
	}
	with := base.apply(rules, func(p string) []int {
		wild := strings.Count(p, "*")
		return []int{-min(wild, 1), len(p) - wild}
	})
	with.Index = NewIndex(with.MethodRules[len(c.MethodRules):]) // WithMethodOptions appends
	if c.Index != nil {
		c.Index.targets.Store(string(key), with)
	}
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
// c. The rules for the method come first, then those for the method at this target, which win.
func (c *Config) ForMethod(target *Config, method string) *Config {
	r := target.apply(c.Index.matching(method, target.HTTP), specificity)
	if target == c {
		return r
	}
	return r.apply(target.Index.matching(method, target.HTTP), specificity)
}

// apply applies rules, the most specific last, to a copy of the configuration: see
// hedge.WithMethodOptions.
func (c *Config) apply(rules []Rule, specificity func(string) []int) *Config {
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
