// Package config makes the options of package hedge from JSON, and JSON from the options that a scheduler has.
//
// The configuration is one JSON object. Each field has the name of an option without its With: "maxHedges": 2 is
// hedge.WithMaxHedges(2). Options that take a Go function have no field. docs/configuration.md of this module lists all fields.
//
// Both functions may be called concurrently.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// Parse returns the options that a JSON object describes, for [hedge.New] and [hedge.Scheduler.Update]. An error joins one
// for each field that is wrong, and names the field by its path, the value, and what is allowed. These are errors: an unknown
// field, a field that cannot be set where it is, a field that is given twice, and a value that the option does not accept.
//
// New and Update check the options together. For example, one of them must say which methods may run twice.
func Parse(data []byte) ([]hedge.Option, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		at := int64(len(data)) // the text is too short
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = syntax.Offset
		}
		return nil, fmt.Errorf("hedge: config: not JSON, at byte %d of %d: %w", at, len(data), err)
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("hedge: config: there is something after the JSON object: %s", shown(rest))
	}
	opts, err := parse("", raw, settings.ForScheduler)
	if err != nil {
		return nil, fmt.Errorf("hedge: config: %w", err)
	}
	return opts, nil
}

// Format returns the configuration of a scheduler as JSON that [Parse] reads. It has the options that were given, sorted by
// name, without those that take a Go function. It returns nil if s is nil.
func Format(s *hedge.Scheduler) []byte {
	r := registry.Of(s)
	if r == nil {
		return nil
	}
	c := r.Config()
	data, err := json.MarshalIndent(format(&c), "", "  ")
	if err != nil { // the values came from options, which all have a form in JSON
		panic(fmt.Sprintf("hedge: config: %v", err))
	}
	return data
}

// parse parses an object of fields. The path is that of the object, "" for the whole.
func parse(path string, raw json.RawMessage, where *settings.Scope) ([]hedge.Option, error) {
	members, err := membersOf(path, raw, "an object")
	if err != nil {
		return nil, err
	}
	var all []hedge.Option
	var errs []error
	for _, m := range members {
		f, ok := fields[m.name]
		at := join(path, m.name)
		var opts []hedge.Option
		switch {
		case !ok:
			err = noField(at, fieldsFor(where))
		case !where.Allows(f.option): // before a look into the value, however deep it is
			err = fmt.Errorf("%s: %s cannot be set for %v; the fields here are %s", at, f.option, where, strings.Join(fieldsFor(where), ", "))
		default:
			if opts, err = f.parse(at, m.value); err == nil {
				err = try(at, opts)
			}
		}
		errs = append(errs, err)
		all = append(all, opts...)
	}
	return all, errors.Join(errs...)
}

// format returns the fields of the options that were given.
func format(c *settings.Config) map[string]any {
	values := map[string]any{}
	for name, f := range fields {
		if slices.Contains(c.Set, f.option) {
			values[name] = f.format(c)
		}
	}
	return values
}

// try applies options, and returns their error with the path that they are from.
func try(path string, opts []hedge.Option) error {
	if _, err := hedge.New(append(opts, hedge.WithAllMethods())...); err != nil {
		return fmt.Errorf("%s: %s", path, strings.ReplaceAll(err.Error(), "hedge: ", ""))
	}
	return nil
}

func fieldsFor(where *settings.Scope) []string {
	names := slices.Sorted(maps.Keys(fields))
	return slices.DeleteFunc(names, func(name string) bool { return !where.Allows(fields[name].option) })
}

type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in their order. It refuses a name that is there twice, where json takes the last.
func membersOf(path string, raw json.RawMessage, allowed string) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, wrong(path, raw, allowed)
	}
	var members []member
	for d.More() {
		var m member
		name, err := d.Token()
		if err != nil || d.Decode(&m.value) != nil {
			return nil, wrong(path, raw, allowed)
		}
		m.name = name.(string)
		if slices.ContainsFunc(members, func(o member) bool { return o.name == m.name }) {
			return nil, fmt.Errorf("%s: the field is given twice", join(path, m.name))
		}
		members = append(members, m)
	}
	return members, nil
}

// join returns the path of a member: maxHedges, or methodOptions["/s/M"].maxHedges.
func join(path, name string) string {
	odd := func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	switch {
	case name == "" || strings.ContainsFunc(name, odd):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

func noField(path string, names []string) error {
	return fmt.Errorf("%s: there is no such field; the fields here are %s", path, strings.Join(names, ", "))
}

func wrong(path string, raw json.RawMessage, allowed string) error {
	if path == "" {
		path = "the configuration"
	}
	return fmt.Errorf("%s: %s is not %s", path, shown(raw), allowed)
}

// shown is a value as errors show it: only its beginning if it is long.
func shown(raw []byte) string {
	const most = 80 // bytes
	value := string(bytes.TrimSpace(raw))
	if len(value) > most {
		value = value[:most] + "..."
	}
	return strconv.QuoteToGraphic(value)
}
