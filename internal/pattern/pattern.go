// Package pattern matches full method names, "/service/method", against patterns in the syntax of [path.Match].
package pattern

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
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

// Any reports whether one of the patterns, which Check has accepted, matches a full method name.
func Any(patterns []string, fullMethod string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, fullMethod)
		return ok
	})
}
