package settings

import (
	"slices"
	"strings"
)

// Unused is a pattern that matches nothing in use.
type Unused struct {
	Pattern string `json:"pattern"`
	// Nearest is the most similar name in use; "" if none is similar.
	Nearest string `json:"nearest,omitempty"`
}

// Unused looks for the nearest names of the first maxWithNearest patterns, among maxCompared names.
const maxWithNearest, maxCompared = 10, 500

// Unused returns the patterns that match none of the methods, given as pairs of target and method, and
// the patterns of targets that match none of their targets, both sorted.
func (c *Config) Unused(methods [][2]string) (all []Unused) {
	matched, targets, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range methods {
		targets[m[0]], names[m[1]] = true, true
		n := parseName(m[1], IsHTTP(m[0]))
		for p := range c.Index.near(n.path(n.samples[0])) {
			matched[p.text] = matched[p.text] || p.covers(n)
		}
	}
	for _, patterns := range c.Index.byPrefix {
		for _, p := range patterns {
			if !matched[p.text] {
				matched[p.text] = true // once
				all = append(all, Unused{p.text, nearest(p.text, names, len(all))})
			}
		}
	}
	for _, rule := range c.TargetRules {
		used := false
		for target := range targets {
			used = used || matchName(rule.Pattern, target)
		}
		if !used {
			all = append(all, Unused{rule.Pattern, nearest(rule.Pattern, targets, len(all))})
		}
	}
	slices.SortFunc(all, func(a, b Unused) int { return strings.Compare(a.Pattern, b.Pattern) })
	return all
}

// HasPattern reports whether an option has a pattern.
func (c *Config) HasPattern(text string) bool {
	for _, patterns := range c.Index.byPrefix {
		if slices.ContainsFunc(patterns, func(p *pattern) bool { return p.text == text }) {
			return true
		}
	}
	return slices.ContainsFunc(c.TargetRules, func(r Rule) bool { return r.Pattern == text })
}

// nearest returns the name that is most similar to a pattern, or "" if they differ in more than a
// quarter of its characters. before is the number of patterns that have been looked at.
func nearest(pattern string, names map[string]bool, before int) (name string) {
	least, compared := max(len(pattern)/4, 2)+1, 0
	for n := range names {
		if compared++; before >= maxWithNearest || compared > maxCompared {
			break
		}
		if d := difference(pattern, n); d < least || d == least && name != "" && n < name {
			name, least = n, d
		}
	}
	return name
}

// difference returns the number of characters to insert, delete or replace until a pattern matches a
// name, part by part between slashes. A part counts only up to its first wildcard.
func difference(pattern, name string) (sum int) {
	p, n := strings.Split(pattern, "/"), strings.Split(name, "/")
	for i := range max(len(p), len(n)) {
		var a, b string
		if i < len(p) {
			a = p[i]
		}
		if i < len(n) {
			b = n[i]
		}
		if at := strings.IndexAny(a, wild+"{"); at >= 0 {
			a, b = a[:at], b[:min(at, len(b))]
		}
		sum += distance(a, b)
	}
	return sum
}

// distance returns the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
