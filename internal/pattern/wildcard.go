package pattern

import (
	"cmp"
	"strings"
)

// Matches reports whether a name matches a pattern in which * stands for any characters, slashes included, and every other
// character for itself.
func Matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, last)
}

// CompareNames orders patterns of [Matches] by how specific they are: see [Compare].
func CompareNames(a, b string) int {
	return compare(a, b, strings.Count(a, "*"), strings.Count(b, "*"))
}

// compare orders two patterns, with so many characters that are wildcards or belong to one.
func compare(a, b string, wildA, wildB int) int {
	exact := func(wild int) int {
		if wild == 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(exact(wildA), exact(wildB)),
		cmp.Compare(len(a)-wildA, len(b)-wildB),
		strings.Compare(a, b),
	)
}

// Compare orders patterns of [Any] by how specific they are: below 0 if b is more specific than a. A pattern without
// wildcards is the most specific. Of two others it is the one with more characters that stand for themselves, and then the
// one that is later in the alphabet.
func Compare(a, b string) int { return compare(a, b, wild(a), wild(b)) }

// wild counts the characters that are wildcards or belong to one.
func wild(p string) (n int) {
	inClass := false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '\\':
			i++
			n++
			if inClass {
				n++
			}
		case inClass || c == '[':
			inClass = c != ']'
			n++
		case c == '*' || c == '?':
			n++
		}
	}
	return n
}
