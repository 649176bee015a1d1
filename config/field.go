package config

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/serviceconfig"
	"github.com/grpchedge/hedge/internal/settings"
)

type field struct {
	option string
	parse  func(path string, raw json.RawMessage) ([]hedge.Option, error)
	format func(c *settings.Config) any
}

// fields has every option that takes no Go function. settings.Scope says where each can be set.
var fields map[string]field

func init() { // not in the declaration, because the fields for rules contain all others
	fields = map[string]field{
		"allMethods":      only("WithAllMethods", hedge.WithAllMethods),
		"idempotentOnly":  only("WithIdempotentOnly", hedge.WithIdempotentOnly),
		"methods":         list("WithMethods", "a list of patterns", hedge.WithMethods, func(c *settings.Config) any { return c.Methods }),
		"readOnlyMethods": list("WithReadOnlyMethods", "a list of patterns", hedge.WithReadOnlyMethods, func(c *settings.Config) any { return c.ReadOnly }),
		"serviceConfig":   {"WithServiceConfig", parseServiceConfig, func(c *settings.Config) any { return json.RawMessage(c.ServiceConfig.JSON) }},

		"trigger":       {"WithTrigger", parseTrigger, formatTrigger},
		"maxHedges":     value("WithMaxHedges", "a whole number, 0 to 4", func(n whole) hedge.Option { return hedge.WithMaxHedges(int(n)) }, func(c *settings.Config) any { return c.MaxHedges }),
		"budgetPercent": value("WithBudgetPercent", "a number, 0 to 400", hedge.WithBudgetPercent, func(c *settings.Config) any { return c.BudgetPercent }),
		"minDelay":      value("WithMinDelay", aDuration, func(d duration) hedge.Option { return hedge.WithMinDelay(time.Duration(d)) }, func(c *settings.Config) any { return duration(c.MinDelay) }),
		"warmup": pair("WithWarmup", `{"calls": 20, "delay": "0s"}`, func(calls whole, delay duration) hedge.Option {
			return hedge.WithWarmup(int(calls), time.Duration(delay))
		}, func(c *settings.Config) (any, any) { return c.WarmupCalls, duration(c.WarmupDelay) }),
		"nonFatalCodes":    list("WithNonFatalCodes", `a list of statuses such as "UNAVAILABLE"`, hedge.WithNonFatalCodes, nonFatalCodes),
		"guard":            flag("WithGuard", hedge.WithGuard, func(c *settings.Config) any { return c.Guard }),
		"otherBackendOnly": flag("WithOtherBackendOnly", hedge.WithOtherBackendOnly, func(c *settings.Config) any { return c.OtherBackendOnly }),
		"off":              flag("WithOff", hedge.WithOff, func(c *settings.Config) any { return c.Off }),
		"dryRun":           flag("WithDryRun", hedge.WithDryRun, func(c *settings.Config) any { return c.DryRun }),
		"control":          value("WithControl", "a number, 0 to 100", hedge.WithControl, func(c *settings.Config) any { return c.Control }),
		"resetLimit": pair("WithResetLimit", `{"resets": 100, "per": "1m"}`, func(n whole, per duration) hedge.Option {
			return hedge.WithResetLimit(int(n), time.Duration(per))
		}, func(c *settings.Config) (any, any) { return c.ResetLimit.N, duration(c.ResetLimit.Per) }),

		"window":        value("WithWindow", aDuration, func(d duration) hedge.Option { return hedge.WithWindow(time.Duration(d)) }, func(c *settings.Config) any { return duration(c.Window) }),
		"maxMemory":     value("WithMaxMemory", "a whole number of bytes", func(n whole) hedge.Option { return hedge.WithMaxMemory(int64(n)) }, func(c *settings.Config) any { return c.MaxMemory }),
		"methodOptions": rules("WithMethodOptions", settings.ForMethods, hedge.WithMethodOptions, func(c *settings.Config) []settings.Rule { return c.MethodRules }),
		"targetOptions": rules("WithTargetOptions", settings.ForTargets, hedge.WithTargetOptions, func(c *settings.Config) []settings.Rule { return c.TargetRules }),
	}
}

// value is the field of an option with a value of type T, as package json decodes it.
func value[T any](option, allowed string, set func(T) hedge.Option, get func(*settings.Config) any) field {
	return field{option, func(path string, raw json.RawMessage) ([]hedge.Option, error) {
		var v T
		if string(raw) == "null" || json.Unmarshal(raw, &v) != nil {
			return nil, wrong(path, raw, allowed)
		}
		return []hedge.Option{set(v)}, nil
	}, get}
}

// flag is the field of an option that is on or off.
func flag(option string, set func(bool) hedge.Option, get func(*settings.Config) any) field {
	return value(option, "true or false", set, get)
}

// only is the field of an option that is on wherever it is given. False means the same as leaving the field out.
func only(option string, set func() hedge.Option) field {
	return flag(option, func(on bool) hedge.Option {
		if on {
			return set()
		}
		return nil
	}, func(*settings.Config) any { return true })
}

func list[T any](option, allowed string, set func(...T) hedge.Option, get func(*settings.Config) any) field {
	return value(option, allowed, func(l []T) hedge.Option { return set(l...) }, get)
}

// pair is the field of an option with two values, an object with both of them. The example has their names.
func pair[A, B any](option, example string, set func(A, B) hedge.Option, get func(*settings.Config) (any, any)) field {
	names := strings.Split(example, `"`)
	a, b, allowed := names[1], names[3], "an object such as "+example
	return field{option, func(path string, raw json.RawMessage) ([]hedge.Option, error) {
		var first A
		var second B
		given, err := object(path, raw, allowed, []string{a, b}, &first, &second)
		if err == nil && len(given) < 2 {
			err = wrong(path, raw, allowed)
		}
		return []hedge.Option{set(first, second)}, err
	}, func(c *settings.Config) any {
		first, second := get(c)
		return map[string]any{a: first, b: second}
	}}
}

// object reads an object into the variables that belong to the names, and returns the names that it has.
func object(path string, raw json.RawMessage, allowed string, names []string, variables ...any) (given []string, err error) {
	members, err := membersOf(path, raw, allowed)
	for _, m := range members {
		i := slices.Index(names, m.name)
		switch {
		case i < 0:
			return nil, noField(join(path, m.name), names)
		case string(m.value) == "null" || json.Unmarshal(m.value, variables[i]) != nil:
			return nil, wrong(path, raw, allowed)
		}
		given = append(given, m.name)
	}
	return given, err
}

// rules is the field of an option that applies others to what matches a pattern: an object from patterns to objects of fields.
func rules(option string, where *settings.Scope, set func(pattern string, opts ...hedge.Option) hedge.Option, get func(*settings.Config) []settings.Rule) field {
	return field{option, func(path string, raw json.RawMessage) ([]hedge.Option, error) {
		members, err := membersOf(path, raw, "an object")
		var all []hedge.Option
		for _, m := range members {
			at := join(path, m.name)
			opts, err := parse(at, m.value, where)
			if err != nil {
				return nil, err
			}
			rule := set(m.name, opts...)
			if err := try(at, []hedge.Option{rule}); err != nil {
				return nil, err
			}
			all = append(all, rule)
		}
		return all, err
	}, func(c *settings.Config) any {
		patterns := map[string]any{}
		for _, r := range get(c) {
			set := settings.DefaultConfig()
			r.Apply(&set)
			patterns[r.Pattern] = format(&set)
		}
		return patterns
	}}
}

func parseServiceConfig(path string, raw json.RawMessage) ([]hedge.Option, error) {
	if raw[0] != '{' {
		return nil, wrong(path, raw, "a service config, an object")
	}
	return []hedge.Option{hedge.WithServiceConfig(string(raw))}, nil
}

const aTrigger = `one of {"auto": {}}, {"auto": {"targetPercentile": 0.99}}, {"percentile": 0.9} and {"fixed": "10ms"}`

func parseTrigger(path string, raw json.RawMessage) ([]hedge.Option, error) {
	var auto json.RawMessage
	var percentile, target float64 = 0, settings.DefaultTarget
	var fixed duration
	given, err := object(path, raw, aTrigger, []string{"auto", "percentile", "fixed"}, &auto, &percentile, &fixed)
	switch {
	case err != nil:
		return nil, err
	case len(given) != 1:
		return nil, wrong(path, raw, aTrigger)
	case given[0] == "percentile":
		return []hedge.Option{hedge.WithTrigger(hedge.Percentile(percentile))}, nil
	case given[0] == "fixed":
		return []hedge.Option{hedge.WithTrigger(hedge.Fixed(time.Duration(fixed)))}, nil
	}
	_, err = object(join(path, "auto"), auto, aTrigger, []string{"targetPercentile"}, &target)
	return []hedge.Option{hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(target)))}, err
}

func formatTrigger(c *settings.Config) any {
	switch t := c.Trigger; t.Kind {
	case settings.PercentileTrigger:
		return map[string]any{"percentile": t.Quantile}
	case settings.FixedTrigger:
		return map[string]any{"fixed": duration(t.Delay)}
	default:
		return map[string]any{"auto": map[string]any{"targetPercentile": t.Quantile}}
	}
}

// codeNames are the names that gRPC's specification gives to its codes.
var codeNames = strings.Fields("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED " +
	"RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED")

func nonFatalCodes(c *settings.Config) any {
	names := []string{}
	for code, name := range codeNames {
		if code := codes.Code(code); code != codes.OK && !c.Final.Has(code) {
			names = append(names, name)
		}
	}
	return names
}

// whole is a whole number, however JSON writes it: 1000000, 1e6 or 1000000.0.
type whole int

func (w *whole) UnmarshalJSON(text []byte) error {
	n, err := serviceconfig.Integer(text)
	if *w = whole(n); int64(*w) != n { // on a 32-bit machine
		return errors.New("too large")
	}
	return err
}

const aDuration = `a duration such as "1.5s" or "20ms"`

// duration is a time.Duration as a string in JSON.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}
