// Package pattern is about full method names, "/service/method": patterns of them in the syntax of [path.Match], and
// their descriptors.
package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Check returns an error if p is not a pattern of the form "/service/method".
func Check(p string) error {
	service, method, ok := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if !strings.HasPrefix(p, "/") || !ok || service == "" || method == "" || strings.Contains(method, "/") {
		return errors.New(`a pattern has the form "/service/method"`)
	}
	if !utf8.ValidString(p) {
		return errors.New("a pattern is UTF-8")
	}
	if _, err := path.Match(p, ""); err != nil {
		return fmt.Errorf("malformed pattern: %w", err)
	}
	return nil
}

// Descriptor returns the descriptor of a full method name; nil if none is linked into the program.
func Descriptor(fullMethod string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	m, _ := d.(protoreflect.MethodDescriptor)
	return m
}

// Any reports whether one of the patterns, which Check has accepted, matches a full method name.
func Any(patterns []string, fullMethod string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, fullMethod)
		return ok
	})
}

// Matches reports whether a name matches a pattern in which * stands for any characters, slashes included, and every other
// character for itself.
func Matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	for i, part := range parts[:last] {
		before, after, ok := strings.Cut(name, part)
		if !ok || i == 0 && before != "" {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, parts[last]) && (last > 0 || name == pattern)
}

// CompareNames orders patterns of [Matches] by how specific they are: see [Compare].
func CompareNames(a, b string) int {
	return compare(a, b, len(a)-strings.Count(a, "*"), len(b)-strings.Count(b, "*"))
}

// Compare orders patterns of [Any] by how specific they are: below 0 if b is more specific than a. A pattern without
// wildcards is the most specific. Of two others it is the one with more characters that stand for themselves, and then the
// one that is later in the alphabet.
func Compare(a, b string) int { return compare(a, b, literal(a), literal(b)) }

// compare orders two patterns, given how many of their characters stand for themselves.
func compare(a, b string, literalA, literalB int) int {
	return cmp.Or(
		cmp.Compare(min(len(b)-literalB, 1), min(len(a)-literalA, 1)), // whether there is a wildcard
		cmp.Compare(literalA, literalB),
		strings.Compare(a, b),
	)
}

// literal counts the characters that stand for themselves. Characters in brackets do not.
func literal(p string) (n int) {
	inClass := false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case inClass && c != '\\':
			inClass = c != ']'
		case c == '[':
			inClass = true
		case c == '\\':
			i++
			if !inClass {
				n++
			}
		case c != '*' && c != '?':
			n++
		}
	}
	return n
}
