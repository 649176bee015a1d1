package whatif

import (
	"errors"
	"strings"
)

// Filter has the columns, fields or labels that a call must have, and their values. The zero Filter
// lets all calls pass.
type Filter []condition

type condition struct{ name, value string }

// String is a filter as Set reads it.
func (f Filter) String() string {
	var all []string
	for _, c := range f {
		all = append(all, c.name+"="+c.value)
	}
	return strings.Join(all, " ")
}

// Set adds a condition: name=value.
func (f *Filter) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return errors.New("must be name=value, such as status=OK")
	}
	*f = append(*f, condition{strings.TrimSpace(name), strings.TrimSpace(value)})
	return nil
}

// passes reports whether a call passes. get returns the value that the call has under a name. If it
// has none, missing is that name.
func (f Filter) passes(get func(name string) (string, bool)) (ok bool, missing string) {
	ok = true
	for _, c := range f {
		value, has := get(c.name)
		if !has {
			return false, c.name
		}
		ok = ok && value == c.value
	}
	return ok, ""
}
