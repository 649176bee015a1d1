package hedge

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/engine"
)

// configField is one field of the JSON form.
type configField struct {
	option string
	parse  func(path string, raw json.RawMessage) (Option, error)
	format func(c *engine.Config) any
}

// allowed reports whether the field can be set there.
func (f *configField) allowed(where scope) bool {
	return where == forAll || scopes[f.option]&where != 0
}

// configFields has every option that takes no Go function.
var configFields map[string]configField

func init() { // not in the declaration, because the fields for rules contain all others
	configFields = map[string]configField{
		"allMethods":              flag("WithAllMethods", WithAllMethods, func(c *engine.Config) bool { return c.All }),
		"idempotentOnly":          flag("WithIdempotentOnly", WithIdempotentOnly, func(c *engine.Config) bool { return c.IdempotentOnly }),
		"methods":                 value("WithMethods", "a list of patterns", func(p []string) Option { return WithMethods(p...) }, func(c *engine.Config) []string { return c.Methods }),
		"readOnlyMethods":         value("WithReadOnlyMethods", "a list of patterns", func(p []string) Option { return WithReadOnlyMethods(p...) }, func(c *engine.Config) []string { return c.ReadOnly }),
		"serviceConfigOnly":       flag("WithServiceConfigOnly", WithServiceConfigOnly, func(c *engine.Config) bool { return c.ServiceConfigOnly }),
		"trigger":                 {"WithTrigger", parseTrigger, formatTrigger},
		"maxHedges":               value("WithMaxHedges", "a whole number, 0 to 4", func(n whole) Option { return WithMaxHedges(count(n)) }, func(c *engine.Config) whole { return whole(c.MaxHedges) }),
		"budgetPercent":           value("WithBudgetPercent", "a number, 0 to 400", WithBudgetPercent, func(c *engine.Config) float64 { return c.BudgetPercent }),
		"minDelay":                value("WithMinDelay", aDuration, func(d duration) Option { return WithMinDelay(time.Duration(d)) }, func(c *engine.Config) duration { return duration(c.MinDelay) }),
		"warmup":                  value("WithWarmup", `an object such as {"calls": 20, "delay": "0s"}`, func(w warmup) Option { return WithWarmup(count(w.Calls), time.Duration(w.Delay)) }, func(c *engine.Config) warmup { return warmup{whole(c.WarmupCalls), duration(c.WarmupDelay)} }),
		"nonFatalCodes":           value("WithNonFatalCodes", `a list of statuses such as "UNAVAILABLE"`, func(l []statusCode) Option { return WithNonFatalCodes(codesOf(l)...) }, nonFatalCodes),
		"withoutGuard":            flag("WithoutGuard", WithoutGuard, func(c *engine.Config) bool { return !c.Guard }),
		"otherBackendOnly":        flag("WithOtherBackendOnly", WithOtherBackendOnly, func(c *engine.Config) bool { return c.OtherBackendOnly }),
		"hedgesOfHedges":          flag("WithHedgesOfHedges", WithHedgesOfHedges, func(c *engine.Config) bool { return c.HedgesOfHedges }),
		"off":                     flag("WithOff", WithOff, func(c *engine.Config) bool { return c.Off }),
		"dryRun":                  flag("WithDryRun", WithDryRun, func(c *engine.Config) bool { return c.DryRun }),
		"control":                 value("WithControl", "a number, 0 to 50", WithControl, func(c *engine.Config) float64 { return c.Control }),
		"serviceConfig":           {"WithServiceConfig", parseServiceConfig, func(c *engine.Config) any { return json.RawMessage(c.ServiceConfig.JSON) }},
		"serviceConfigUnbudgeted": flag("WithServiceConfigUnbudgeted", WithServiceConfigUnbudgeted, func(c *engine.Config) bool { return c.Unbudgeted }),
		"throttle": value("WithThrottle", `an object such as {"maxTokens": 10, "ratio": 0.1}`, func(t throttle) Option { return WithThrottle(count(t.MaxTokens), t.Ratio) }, func(c *engine.Config) throttle {
			return throttle{whole(c.Throttle.Tokens), float64(c.Throttle.MilliRatio) / 1000}
		}),
		"resetLimit": value("WithResetLimit", `an object such as {"resets": 100, "per": "1m"}`, func(l resetLimit) Option { return WithResetLimit(count(l.Resets), time.Duration(l.Per)) }, func(c *engine.Config) resetLimit {
			return resetLimit{whole(c.ResetLimit.N), duration(c.ResetLimit.Per)}
		}),
		"window":        value("WithWindow", aDuration, func(d duration) Option { return WithWindow(time.Duration(d)) }, func(c *engine.Config) duration { return duration(c.Window) }),
		"maxMemory":     value("WithMaxMemory", "a whole number of bytes", func(n whole) Option { return WithMaxMemory(int64(n)) }, func(c *engine.Config) whole { return whole(c.MaxMemory) }),
		"methodOptions": rules("WithMethodOptions", forMethods, WithMethodOptions, func(c *engine.Config) []engine.Rule { return c.MethodRules }),
		"targetOptions": rules("WithTargetOptions", forTargets, WithTargetOptions, func(c *engine.Config) []engine.Rule { return c.TargetRules }),
	}
}

// flag is the field of an option without a value. False is as if the field were not there.
func flag(option string, set func() Option, get func(*engine.Config) bool) configField {
	return value(option, "true or false", func(on bool) Option {
		if !on {
			return nil // which apply ignores
		}
		return set()
	}, get)
}

// value is the field of an option with a value of type T, as package json decodes it. If T is a struct, the value has each
// field of it once, in the spelling of its tag; only those that are pointers can be left out.
func value[T any](option, allowed string, set func(T) Option, get func(*engine.Config) T) configField {
	return configField{
		option: option,
		parse: func(path string, raw json.RawMessage) (Option, error) {
			var v T
			if err := checkStruct(path, raw, allowed, reflect.TypeFor[T]()); err != nil {
				return nil, err
			}
			if json.Unmarshal(raw, &v) != nil || string(raw) == "null" {
				return nil, wrong(path, raw, allowed)
			}
			return set(v), nil
		},
		format: func(c *engine.Config) any { return get(c) },
	}
}

// checkStruct returns an error if a value is not an object with the fields of t, if t is a struct. Package json itself
// ignores the case of names, takes the last of two values, and null for none.
func checkStruct(path string, raw json.RawMessage, allowed string, t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	members, err := membersOf(path, raw)
	if err != nil {
		if bytes.HasPrefix(raw, []byte("{")) {
			return err
		}
		return wrong(path, raw, allowed)
	}
	given := map[string]json.RawMessage{}
	for _, m := range members {
		given[m.name] = m.value
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		value, ok := given[name]
		delete(given, name)
		of := t.Field(i).Type
		switch {
		case !ok && of.Kind() != reflect.Pointer, string(value) == "null":
			return wrong(path, raw, allowed)
		case !ok:
		case of.Kind() == reflect.Pointer:
			err = checkStruct(join(path, name), value, allowed, of.Elem())
		}
		if err != nil {
			return err
		}
	}
	for _, m := range members {
		if _, unknown := given[m.name]; unknown {
			return noField(join(path, m.name), names)
		}
	}
	return nil
}

// whole is a whole number, however JSON writes it: 1000000, 1e6 or 1000000.0.
type whole int64

func (w *whole) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		const exact = 1 << 53 // whole numbers that a float64 holds
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > exact {
			return errors.New("not a whole number")
		}
		n = int64(f)
	}
	*w = whole(n)
	return nil
}

// count is a whole number as an int, and -1 if it is beyond that, which every option refuses.
func count(w whole) int {
	if n := int(w); whole(n) == w {
		return n
	}
	return -1
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

type warmup struct {
	Calls whole    `json:"calls"`
	Delay duration `json:"delay"`
}

type resetLimit struct {
	Resets whole    `json:"resets"`
	Per    duration `json:"per"`
}

type throttle struct {
	MaxTokens whole   `json:"maxTokens"`
	Ratio     float64 `json:"ratio"`
}

// nonFatalCodes returns the statuses that do not end a race.
func nonFatalCodes(c *engine.Config) []statusCode {
	list := []statusCode{}
	for code := codes.OK + 1; code <= engine.MaxCode; code++ {
		if !c.Final.Has(code) {
			list = append(list, statusCode(code))
		}
	}
	return list
}

// statusCode is a code by its name in gRPC's specification, such as DEADLINE_EXCEEDED.
type statusCode codes.Code

func (c statusCode) MarshalText() ([]byte, error) {
	if codes.Code(c) == codes.Canceled {
		return []byte("CANCELLED"), nil
	}
	var name []byte
	for i, r := range []byte(codes.Code(c).String()) {
		if i > 0 && r >= 'A' && r <= 'Z' {
			name = append(name, '_')
		}
		name = append(name, byte(unicode.ToUpper(rune(r))))
	}
	return name, nil
}

func (c *statusCode) UnmarshalText(name []byte) error {
	return (*codes.Code)(c).UnmarshalJSON([]byte(strconv.Quote(string(name))))
}

func codesOf(l []statusCode) []codes.Code {
	made := make([]codes.Code, len(l))
	for i, c := range l {
		made[i] = codes.Code(c)
	}
	return made
}

func parseServiceConfig(path string, raw json.RawMessage) (Option, error) {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return nil, wrong(path, raw, "a service config, an object")
	}
	return WithServiceConfig(string(raw)), nil
}

const aTrigger = `one of {"auto": {}}, {"auto": {"targetPercentile": 0.99}}, {"percentile": 0.9} and {"fixed": "10ms"}`

// trigger is a Trigger in JSON: one of its fields is set.
type trigger struct {
	Auto       *auto     `json:"auto,omitempty"`
	Percentile *float64  `json:"percentile,omitempty"`
	Fixed      *duration `json:"fixed,omitempty"`
}

type auto struct {
	TargetPercentile *float64 `json:"targetPercentile,omitempty"`
}

func parseTrigger(path string, raw json.RawMessage) (Option, error) {
	f := value("WithTrigger", aTrigger, func(t trigger) Option {
		switch {
		case t.Auto != nil && t.Percentile == nil && t.Fixed == nil:
			if q := t.Auto.TargetPercentile; q != nil {
				return WithTrigger(Auto(TargetPercentile(*q)))
			}
			return WithTrigger(Auto())
		case t.Auto == nil && t.Percentile != nil && t.Fixed == nil:
			return WithTrigger(Percentile(*t.Percentile))
		case t.Auto == nil && t.Percentile == nil && t.Fixed != nil:
			return WithTrigger(Fixed(time.Duration(*t.Fixed)))
		}
		return nil
	}, nil)
	opt, err := f.parse(path, raw)
	if err == nil && opt == nil {
		err = wrong(path, raw, aTrigger)
	}
	return opt, err
}

func formatTrigger(c *engine.Config) any {
	switch t := c.Trigger; t.Kind {
	case engine.PercentileTrigger:
		return trigger{Percentile: &t.Quantile}
	case engine.FixedTrigger:
		return trigger{Fixed: (*duration)(&t.Delay)}
	default:
		return trigger{Auto: &auto{&t.Quantile}}
	}
}

// rules is the field of an option that applies others to what matches a pattern: an object from patterns to objects of
// fields.
func rules(option string, where scope, set func(pattern string, opts ...Option) Option, get func(*engine.Config) []engine.Rule) configField {
	return configField{
		option: option,
		parse: func(path string, raw json.RawMessage) (Option, error) {
			members, err := membersOf(path, raw)
			if err != nil {
				return nil, err
			}
			var all []Option
			for _, m := range members {
				at := join(path, m.name)
				opts, err := parseFields(at, m.value, where)
				if err != nil {
					return nil, err
				}
				opt := set(m.name, opts...)
				if err := try(at, opt); err != nil {
					return nil, err
				}
				all = append(all, opt)
			}
			return func(c *engine.Config) error { return apply(c, all) }, nil
		},
		format: func(c *engine.Config) any {
			patterns := map[string]any{}
			for _, r := range get(c) {
				set := engine.DefaultConfig()
				r.Apply(&set)
				patterns[r.Pattern] = formatFields(&set, slices.Clone(r.Set))
			}
			return patterns
		},
	}
}
