package hedge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/grpchedge/hedge/internal/engine"
)

// ParseConfig returns the options that a JSON object describes, for [New] and [Scheduler.Update]. Each field has the name of
// an option without its With: "maxHedges": 2 is WithMaxHedges(2). docs/configuration.md of this module lists all fields.
// Options that take a Go function have none.
//
// An error names the field by its path, the value, and what is allowed. Unknown fields, fields that cannot be set where they are
// and fields given twice are errors. So are values that the options do not accept.
//
// What New and Update check of the options together is left to them: that one of them says which methods may run twice, say.
func ParseConfig(data []byte) ([]Option, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		at := int64(len(data)) // where it is too short
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = syntax.Offset
		}
		return nil, fmt.Errorf("hedge: ParseConfig: not JSON, at byte %d of %d: %w", at, len(data), err)
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("hedge: ParseConfig: there is something after the JSON object: %s", shown(rest))
	}
	opts, err := parseFields("", raw, forAll)
	if err != nil {
		return nil, fmt.Errorf("hedge: ParseConfig: %w", err)
	}
	return opts, nil
}

// Config returns the configuration in force, as JSON that [ParseConfig] reads. It has the options that were given, in the
// order of their names, without those that take a Go function. It returns nil for a nil scheduler.
func (s *Scheduler) Config() []byte {
	e := s.inner()
	if e == nil {
		return nil
	}
	c := e.Config()
	data, err := json.MarshalIndent(formatFields(&c, c.Set), "", "  ")
	if err != nil { // the values came from options, which all have a form in JSON
		panic(fmt.Sprintf("hedge: Config: %v", err))
	}
	return data
}

// parseFields parses an object of fields, for where they are. The path is that of the object, "" for the whole.
func parseFields(path string, raw json.RawMessage, where scope) ([]Option, error) {
	members, err := membersOf(path, raw)
	if err != nil {
		return nil, err
	}
	var opts []Option
	var errs []error
	for _, m := range members {
		f, ok := configFields[m.name]
		at := join(path, m.name)
		switch {
		case !ok:
			errs = append(errs, noField(at, fieldsFor(where)))
			continue
		case !f.allowed(where): // before a look into it, however deep it is
			errs = append(errs, fmt.Errorf("%s: %s cannot be set for %v; the fields here are %s", at, f.option, where, strings.Join(fieldsFor(where), ", ")))
			continue
		}
		opt, err := f.parse(at, m.value)
		if err == nil {
			err = try(at, opt)
		}
		errs = append(errs, err)
		opts = append(opts, opt)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return opts, nil
}

// try applies an option, and returns its error with the path that it is from.
func try(path string, opt Option) error {
	scratch := engine.DefaultConfig()
	if err := apply(&scratch, []Option{opt}); err != nil {
		return fmt.Errorf("%s: %s", path, strings.ReplaceAll(err.Error(), "hedge: ", ""))
	}
	return nil
}

func noField(path string, names []string) error {
	return fmt.Errorf("%s: there is no such field; the fields here are %s", path, strings.Join(names, ", "))
}

// fieldsFor returns the names of the fields that can be set there, sorted.
func fieldsFor(where scope) []string {
	names := slices.Sorted(maps.Keys(configFields))
	return slices.DeleteFunc(names, func(name string) bool { f := configFields[name]; return !f.allowed(where) })
}

// formatFields returns what parseFields parses, from the options that have been given.
func formatFields(c *engine.Config, given []string) map[string]any {
	fields := map[string]any{}
	for name, f := range configFields {
		if slices.Contains(given, f.option) {
			fields[name] = f.format(c)
		}
	}
	return fields
}

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in their order. A name that is there twice is an error.
func membersOf(path string, raw json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, wrong(path, raw, "an object")
	}
	var members []member
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, wrong(path, raw, "an object")
		}
		m := member{name: t.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, wrong(path, raw, "an object")
		}
		if seen[m.name] {
			return nil, fmt.Errorf("%s: the field is given twice", join(path, m.name))
		}
		seen[m.name] = true
		members = append(members, m)
	}
	return members, nil
}

// join returns the path of a member: maxHedges, or methodOptions["/s/M"].maxHedges.
func join(path, name string) string {
	for _, r := range name {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return path + "[" + strconv.Quote(name) + "]"
		}
	}
	switch {
	case name == "":
		return path + `[""]`
	case path == "":
		return name
	}
	return path + "." + name
}

// wrong says that a value is not what is allowed.
func wrong(path string, raw json.RawMessage, allowed string) error {
	if path == "" {
		path = "the configuration"
	}
	return fmt.Errorf("%s: %s is not %s", path, shown(raw), allowed)
}

// shown is a value as errors show it: its beginning if it is long.
func shown(raw []byte) string {
	const most = 80 // bytes
	value := string(bytes.TrimSpace(raw))
	if len(value) > most {
		value = value[:most] + "..."
	}
	return strconv.QuoteToGraphic(value)
}
