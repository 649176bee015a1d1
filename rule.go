package hedge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/grpchedge/hedge/internal/pattern"
	"github.com/grpchedge/hedge/internal/settings"
)

// WithMethodOptions applies options to the full methods that match a pattern. They win over those of the scheduler and of the
// target. The syntax of the pattern is that of [WithMethods]. These options can be set for a method: [WithTrigger],
// [WithMaxHedges], [WithBudgetPercent], [WithMinDelay], [WithWarmup], [WithNonFatalCodes], [WithClass], [WithCost],
// [WithAnswer], [WithControl], [WithFollowUp], [WithDryRun], [WithOtherBackendOnly] and [WithOff]. Any other is an error.
//
// If several patterns match, the options of all of them apply. If two of them set the same option, the more specific pattern
// wins: one without wildcards, then the one with more characters that are not wildcards, then the one that is later in the
// alphabet. A pattern that is given twice is an error.
//
// With [WithBudgetPercent] the method gets a budget of its own, which its own calls fill. Each of its hedges must be paid by
// both budgets, its own and the target's.
func WithMethodOptions(methods string, opts ...Option) Option {
	return named("WithMethodOptions", func(c *settings.Config) error {
		r, err := newRule("WithMethodOptions", methods, pattern.Check(methods), opts, settings.ForMethods)
		if err == nil {
			c.MethodRules = append(slices.Clip(c.MethodRules), r)
		}
		return err
	})
}

// WithTargetOptions applies options to the targets that match a pattern. They win over those of the scheduler. A target
// is named as in [stats.Method]. In the pattern, * stands for any characters, slashes included. The options are those
// that can be set for a method, [WithServiceConfig], [WithResetLimit], and [WithMethodOptions] for methods of these
// targets only. Any other option is an error.
//
// If several patterns match, the more specific one wins, as in [WithMethodOptions]. An option of a method wins over one
// of its target.
func WithTargetOptions(targets string, opts ...Option) Option {
	return named("WithTargetOptions", func(c *settings.Config) error {
		var patternErr error
		switch {
		case targets == "":
			patternErr = errors.New("a pattern must not be empty")
		case !utf8.ValidString(targets):
			patternErr = errors.New("a pattern is UTF-8")
		}
		r, err := newRule("WithTargetOptions", targets, patternErr, opts, settings.ForTargets)
		if err == nil {
			c.TargetRules = append(slices.Clip(c.TargetRules), r)
		}
		return err
	})
}

// newRule checks the options of a rule, and returns it. patternErr is the error of its pattern, if it has one.
func newRule(option, pattern string, patternErr error, opts []Option, where *settings.Scope) (settings.Rule, error) {
	if patternErr != nil {
		return settings.Rule{}, fmt.Errorf("hedge: %s(%q): %w", option, pattern, patternErr)
	}
	var given []string
	scratch := settings.DefaultConfig()
	scratch.Given = &given
	errs := []error{apply(&scratch, opts)}
	for _, name := range given {
		if !where.Allows(name) {
			errs = append(errs, fmt.Errorf("%s cannot be set for %v", name, where))
		}
	}
	if errs[0] == nil {
		errs = append(errs, checkRules(&scratch))
	}
	if err := errors.Join(errs...); err != nil {
		return settings.Rule{}, fmt.Errorf("hedge: %s(%q): %s", option, pattern, strings.ReplaceAll(err.Error(), "hedge: ", ""))
	}
	return settings.Rule{
		Pattern:   pattern,
		Set:       given,
		OwnBudget: where == settings.ForMethods && slices.Contains(given, "WithBudgetPercent"),
		Apply:     func(c *settings.Config) { apply(c, opts) }, // the options have been checked
	}, nil
}

// checkRules returns an error if a pattern is given twice.
func checkRules(c *settings.Config) error {
	var errs []error
	for _, of := range []struct {
		option string
		rules  []settings.Rule
	}{{"WithTargetOptions", c.TargetRules}, {"WithMethodOptions", c.MethodRules}} {
		for i, r := range of.rules {
			if slices.ContainsFunc(of.rules[:i], func(o settings.Rule) bool { return o.Pattern == r.Pattern }) {
				errs = append(errs, fmt.Errorf("hedge: %s(%q): the pattern is given twice", of.option, r.Pattern))
			}
		}
	}
	return errors.Join(errs...)
}
