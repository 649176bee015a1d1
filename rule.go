package hedge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/grpchedge/hedge/internal/settings"
)

// WithMethodOptions applies options to the full methods that match a pattern. They win over options of the scheduler and of the
// target. The pattern is written as for [WithMethods]. These options can be set for a method: [WithTrigger],
// [WithMaxHedges], [WithBudgetPercent], [WithMinDelay], [WithWarmup], [WithNonFatalCodes], [WithClass], [WithCost],
// [WithAcceptable], [WithControl], [WithDryRun], [WithGuard], [WithOtherBackendOnly] and [WithOff]. Any other is an error.
//
// If several patterns match, the options of all of them apply. If two of them set the same option, the more specific pattern
// wins: one without wildcards, then the one with more characters that are not wildcards, then the one that is later in the
// alphabet. A pattern that is given twice is an error.
//
// With [WithBudgetPercent] the method gets a budget of its own, which its own calls fill. Each of its hedges must be paid by
// both budgets, its own and the target's.
func WithMethodOptions(methods string, opts ...Option) Option {
	return ruling("WithMethodOptions", methods, checkPattern("WithMethodOptions", methods), opts, "method",
		func(c *settings.Config) *[]settings.Rule { return &c.MethodRules })
}

// WithTargetOptions applies options to the targets that match a pattern. They win over options of the scheduler. A target
// is named as in [stats.Method]. In the pattern, * stands for any characters, slashes included. A target can have each option
// of a method, [WithServiceConfig], [WithResetLimit], and [WithMethodOptions] for methods of these targets only. Any other
// option is an error.
//
// If several patterns match, the more specific one wins, as in [WithMethodOptions]. An option of a method wins over one
// of its target.
func WithTargetOptions(targets string, opts ...Option) Option {
	err := errors.Join(refuse(targets == "", "WithTargetOptions(%q): a pattern must not be empty", targets),
		refuse(!utf8.ValidString(targets), "WithTargetOptions(%q): a pattern is UTF-8", targets))
	return ruling("WithTargetOptions", targets, err, opts, "target",
		func(c *settings.Config) *[]settings.Rule { return &c.TargetRules })
}

// ruling returns the option of a name that adds a rule, for a "method" or a "target". wrong is the error of its pattern, if it has one.
func ruling(name, pattern string, wrong error, opts []Option, of string, to func(*settings.Config) *[]settings.Rule) Option {
	return named(name, func(c *config) error {
		if wrong != nil {
			return wrong
		}
		scratch := config{Config: settings.DefaultConfig()}
		err := apply(&scratch, opts)
		for _, option := range scratch.Set {
			err = errors.Join(err, refuse(!slices.Contains(settings.Allowed[of], option), "%s cannot be set for a %s", option, of))
		}
		if err != nil {
			return fmt.Errorf("hedge: %s(%q): %s", name, pattern, strings.ReplaceAll(err.Error(), "hedge: ", ""))
		}
		rules := to(&c.Config)
		twice := slices.ContainsFunc(*rules, func(r settings.Rule) bool { return r.Pattern == pattern })
		*rules = append(slices.Clip(*rules), settings.Rule{
			Pattern:   pattern,
			OwnBudget: of == "method" && slices.Contains(scratch.Set, "WithBudgetPercent"),
			Apply: func(c *settings.Config) {
				with := config{Config: *c}
				with.Set = nil     // the names are shared with other configurations
				apply(&with, opts) // a method's pattern may be the scheduler's too, and then both count
				*c = with.Config
			},
		})
		return refuse(twice, "%s(%q): the pattern is given twice", name, pattern)
	})
}
