// Package config makes the options of package hedge from JSON. Import it as hedgeconfig alongside
// another package config:
//
//	import hedgeconfig "github.com/grpchedge/hedge/config"
//
// The configuration is one JSON object. Each field is named after an option, without its With:
// "maxHedges": 2 is hedge.WithMaxHedges(2). Options that take a Go function have no field.
// docs/configuration.md of this module lists all fields. proto/configpb/config.proto is the schema,
// read as protobuf's JSON.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/proto/configpb"
)

// Parse returns the options of a JSON object, for [hedge.New] and [hedge.Scheduler.Update]. Its
// errors give line and column for malformed JSON, an unknown or repeated field, and a value of the
// wrong type; and the option for a value out of range and a field that cannot be set there. null is
// the same as no field. Parse may be called concurrently.
//
// New and Update check the options together: for example, one of them must select methods.
func Parse(data []byte) ([]hedge.Option, error) {
	m := &configpb.Options{}
	if err := protojson.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("hedge: config: %w", err)
	}
	opts, err := options(m.ProtoReflect(), false)
	if err = errors.Join(misread(data, m.ProtoReflect().Descriptor(), false), err); err == nil {
		_, err = hedge.New(append(opts, hedge.WithAllMethods())...) // which finds values out of range
	}
	if err != nil {
		return nil, fmt.Errorf("hedge: config: %s", strings.ReplaceAll(err.Error(), "hedge: ", ""))
	}
	return opts, nil
}

// misread returns an error for each value that protobuf's JSON reads as another one: an empty list of
// patterns, which is no list in a message, so that {"methods": [], "idempotentOnly": true} would select
// methods that the list excludes; and a number in quotes. inRule is as in options.
func misread(data []byte, m protoreflect.MessageDescriptor, inRule bool) (err error) {
	var given map[string]json.RawMessage
	_ = json.Unmarshal(data, &given) // protojson has checked it
	for _, name := range slices.Sorted(maps.Keys(given)) {
		f := m.Fields().ByJSONName(name)
		if f == nil {
			f = m.Fields().ByTextName(name)
		}
		text := string(bytes.TrimSpace(given[name]))
		switch {
		case f.IsMap() && !inRule:
			var rules map[string]json.RawMessage
			_ = json.Unmarshal(given[name], &rules)
			for _, pattern := range slices.Sorted(maps.Keys(rules)) {
				err = within(err, fmt.Sprintf("%s[%q]: ", name, pattern), misread(rules[pattern], f.MapValue().Message(), true))
			}
		case f.IsList() && strings.HasPrefix(strings.TrimLeft(text, "[ \t\r\n"), "]"):
			err = within(err, name, errors.New(": must have at least one pattern"))
		case f.Message() != nil && f.Message().ParentFile() == m.ParentFile() && !f.IsMap():
			err = within(err, name+".", misread(given[name], f.Message(), inRule))
		case f.Kind() != protoreflect.StringKind && strings.HasPrefix(text, `"`):
			err = within(err, name, fmt.Errorf(": %s: must not be in quotes", text))
		}
	}
	return err
}

// within joins an error of a part to err.
func within(err error, part string, of error) error {
	if of == nil {
		return err
	}
	return errors.Join(err, fmt.Errorf("%s%w", part, of))
}

// Update is [hedge.Scheduler.Update] with the options of a JSON object. It returns the errors of Parse
// and of that method, and records them for the page of package debug. After an error the options in
// force stay, except that "off": true takes effect, also in a text that is malformed after
// it. Update may be called concurrently.
func Update(s *hedge.Scheduler, data []byte) error {
	opts, err := Parse(data)
	if err == nil {
		return s.Update(opts...)
	}
	(*registry.Registry)(s).Refuse(err, switchesOff(data))
	return err
}

// switchesOff reports whether a JSON object has "off": true before its first syntax error.
func switchesOff(data []byte) (off bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return off
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return off
		}
		off = off || name == "off" && string(value) == "true"
	}
	return off
}

// options returns the options of a message, and joins the errors of malformed values. inRule is
// set for a message within a rule: rules in rules are an error anyway, and are not read.
func options(m protoreflect.Message, inRule bool) ([]hedge.Option, error) {
	p := parsed{inRule: inRule}
	for i, all := 0, m.Descriptor().Fields(); i < all.Len(); i++ {
		if f := all.Get(i); m.Has(f) {
			p.read(f.JSONName(), m.Get(f), fields[string(f.Name())])
		}
	}
	return p.opts, p.err
}

type parsed struct {
	opts   []hedge.Option
	err    error
	inRule bool
}

// read reads the value of a field. with is the option's function.
func (p *parsed) read(field string, value protoreflect.Value, with any) {
	var opt hedge.Option
	switch with := with.(type) {
	case func() hedge.Option:
		if value.Bool() {
			opt = with()
		}
	case func(bool) hedge.Option:
		opt = with(value.Bool())
	case func(int) hedge.Option:
		opt = with(int(value.Int()))
	case func(float64) hedge.Option:
		opt = with(value.Float())
	case func(time.Duration) hedge.Option:
		opt = with(p.duration(field, value.String()))
	case func(int, time.Duration) hedge.Option:
		m := value.Message()
		n, d := m.Descriptor().Fields().Get(0), m.Descriptor().Fields().Get(1)
		opt = with(int(m.Get(n).Int()), p.duration(field+"."+d.JSONName(), m.Get(d).String()))
	case func(string) hedge.Option:
		opt = with(protojson.MarshalOptions{}.Format(value.Message().Interface()))
	case func(...string) hedge.Option:
		var all []string
		for i := range value.List().Len() {
			all = append(all, value.List().Get(i).String())
		}
		opt = with(all...)
	case func(...codes.Code) hedge.Option:
		opt = with(p.statuses(field, value.Message().Interface().(*structpb.ListValue))...)
	case func(hedge.Trigger) hedge.Option:
		opt = with(p.trigger(value.Message().Interface().(*configpb.Trigger)))
	case func(string, ...hedge.Option) hedge.Option:
		p.rules(field, value.Map(), with)
	default:
		panic(fmt.Sprintf("hedge: config: %s: %T has no form in JSON", field, with))
	}
	if opt != nil {
		p.opts = append(p.opts, opt)
	}
}

func (p *parsed) wrong(format string, args ...any) {
	p.err = errors.Join(p.err, fmt.Errorf(format, args...))
}

func (p *parsed) duration(field, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		p.wrong(`%s: %q is not a duration such as "1.5s" or "20ms"`, field, text)
	}
	return d
}

func (p *parsed) statuses(field string, list *structpb.ListValue) []codes.Code {
	all := make([]codes.Code, len(list.Values))
	for i, v := range list.Values {
		text := protojson.Format(v)
		if err := all[i].UnmarshalJSON([]byte(text)); err != nil {
			p.wrong(`%s: %v is not a status such as "UNAVAILABLE"`, field, text)
		}
	}
	return all
}

func (p *parsed) trigger(m *configpb.Trigger) hedge.Trigger {
	switch kind := m.GetKind().(type) {
	case *configpb.Trigger_Auto:
		if kind.Auto.NoLaterThan == nil {
			return hedge.Auto()
		}
		return hedge.Auto(hedge.NoLaterThan(p.duration("trigger.auto.noLaterThan", *kind.Auto.NoLaterThan)))
	case *configpb.Trigger_Percentile:
		return hedge.Percentile(kind.Percentile)
	case *configpb.Trigger_Fixed:
		return hedge.Fixed(p.duration("trigger.fixed", kind.Fixed))
	}
	p.wrong(`trigger: must have one of "auto": {}, "percentile": 0.9 and "fixed": "10ms"`)
	return hedge.Trigger{}
}

func (p *parsed) rules(field string, of protoreflect.Map, with func(string, ...hedge.Option) hedge.Option) {
	var patterns []string
	for key := range of.Range {
		patterns = append(patterns, key.String())
	}
	slices.Sort(patterns)
	for _, pattern := range patterns {
		var opts []hedge.Option
		if !p.inRule {
			var err error
			rule := of.Get(protoreflect.ValueOf(pattern).MapKey())
			if opts, err = options(rule.Message(), true); err != nil {
				p.wrong("%s[%q]: %w", field, pattern, err)
			}
		}
		p.opts = append(p.opts, with(pattern, opts...))
	}
}
