package hedge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/grpchedge/hedge/internal/settings"
)

// WithMethodOptions applies options to the methods that match a pattern, with the syntax of
// [WithMethods]. They override options of the target and of the scheduler. docs/options.md lists
// the options that can be set for a method, such as [WithTrigger], [WithBudgetPercent] and
// [WithOff]. Any other option is an error.
//
// The options of all patterns that match apply. If two patterns set the same option, the more
// specific pattern wins: one without wildcards, then the one with more characters that are not
// wildcards, then the later one in the alphabet. For HTTP patterns that is the order of
// [net/http.ServeMux]: one with a host comes first. A repeated pattern is an error.
//
// With [WithBudgetPercent] the method gets its own budget, which only its calls fill. Its hedges
// are paid for twice: from the method's budget and from the target's.
func WithMethodOptions(methods string, opts ...Option) Option {
	return ruling("WithMethodOptions", methods, checkPattern("WithMethodOptions", methods), opts, "method",
		func(c *settings.Config) *[]settings.Rule { return &c.MethodRules })
}

// WithTargetOptions applies options to the targets that match a pattern. They override options of
// the scheduler; options of a method override them. Targets have the names of [stats.Method]. In
// the pattern, * matches any characters, slashes included. The options of [WithMethodOptions] can
// be set, and [WithServiceConfig] and [WithHedgeLimit]. Any other option is an error. Several
// matching patterns combine as in [WithMethodOptions].
func WithTargetOptions(targets string, opts ...Option) Option {
	err := errors.Join(
		refuse(targets == "", "WithTargetOptions(%q): must not be empty", targets),
		refuse(!utf8.ValidString(targets), "WithTargetOptions(%q): must be valid UTF-8", targets))
	return ruling("WithTargetOptions", targets, err, opts, "target",
		func(c *settings.Config) *[]settings.Rule { return &c.TargetRules })
}

// ruling returns an option that adds a rule for a "method" or a "target". wrong is the error of its
// pattern, if any.
func ruling(
	name, pattern string, wrong error, opts []Option, of string, to func(*settings.Config) *[]settings.Rule,
) Option {
	opts = slices.Clone(opts) // the rule is applied when a method is first called
	needed := notForMethods
	if of == "method" {
		needed = anywhere
	}
	return &setting{name, forScheduler, append([]any{pattern}, asArgs(opts)...), func(c *config) error {
		if wrong != nil {
			return wrong
		}
		scratch, err := applied(settings.DefaultConfig(), opts)
		for _, option := range slices.Sorted(maps.Keys(scratch.given)) {
			err = errors.Join(err, refuse(scratch.given[option] < needed, "%s cannot be set for a %s", option, of))
		}
		if err != nil {
			return fmt.Errorf("hedge: %s(%q): %s", name, pattern, strings.ReplaceAll(err.Error(), "hedge: ", ""))
		}
		rules := to(&c.Config)
		twice := c.rules[[2]string{name, pattern}]
		c.rules[[2]string{name, pattern}] = true
		_, budget := scratch.given["WithBudgetPercent"]
		*rules = append(*rules, settings.Rule{
			Pattern:   pattern,
			OwnBudget: of == "method" && budget,
			Apply: func(c *settings.Config) {
				base := *c
				base.Options = nil
				with, _ := applied(base, opts)
				with.Options, *c = c.Options, with.Config // all methods share the texts
			},
		})
		return refuse(twice, "%s(%q): must not be given twice", name, pattern)
	}}
}
