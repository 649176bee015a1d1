package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A pattern of methods has one of two forms:
//
//   - "/service/method" in the syntax of [path.Match], for full gRPC methods
//   - a route, a pattern of [http.ServeMux], "[METHOD ][HOST]/[PATH]", for HTTP requests
//
// The name of a method is a full gRPC method, the route that names its requests, or any other name.

// isRoute reports whether a pattern or a name is a route.
func isRoute(p string) bool {
	at := strings.IndexByte(p, '/')
	if at < 0 {
		return false
	}
	deep := strings.Count(p[at:], "/") != 2 || strings.HasSuffix(p, "/")
	switch method, _, found := strings.Cut(p[:at], " "); {
	case found:
		return method != "" && method == strings.ToUpper(method)
	case at > 0: // "pkg.Svc/Get" is a gRPC method that lacks its slash
		deep = strings.Contains(p[:at], ".") && (strings.Count(p, "/") > 1 || strings.HasSuffix(p, "/"))
	}
	return deep || strings.ContainsAny(p, "{}")
}

// service matches a gRPC service that lacks its method.
var service = regexp.MustCompile(`^/?([a-zA-Z_]\w*\.)+[A-Z]\w*/?$`)

// CheckPattern returns an error if p is not a pattern, or if it is a route and must be of gRPC.
func CheckPattern(p string, grpc bool) error {
	if !utf8.ValidString(p) {
		return errors.New("must be valid UTF-8")
	}
	if strings.TrimSpace(p) != p {
		return errors.New("must not begin or end with white space")
	}
	if isRoute(p) && !grpc && !service.MatchString(p) {
		if strings.ContainsAny(p, "*?[") || strings.Contains(p, "//") {
			return errors.New("must be a clean path with wildcards of the form {name} or {name...}")
		}
		return register(http.NewServeMux(), p)
	}
	if form := strings.Split(p, "/"); len(form) != 3 || form[0] != "" || form[1] == "" || form[2] == "" {
		if grpc {
			return errors.New(`must have the form "/service/method"`)
		}
		return errors.New(`must have the form "/service/method" or "METHOD /path/{name}"`)
	}
	if _, err := path.Match(p, ""); err != nil {
		return fmt.Errorf("malformed pattern: %w", err)
	}
	return nil
}

// register adds a pattern to a mux, which rejects a malformed pattern and a conflict.
func register(mux *http.ServeMux, p string) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("must be a pattern of http.ServeMux: %v", why)
		}
	}()
	mux.Handle(p, http.NotFoundHandler())
	return nil
}

// checkConflicts returns an error if two patterns match the same requests, and none of them is more
// specific.
func checkConflicts(patterns []string) error {
	all := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return !isRoute(p) })
	slices.Sort(all)
	mux := http.NewServeMux()
	for n, p := range slices.Compact(all) {
		if register(mux, p) == nil {
			continue
		}
		with := slices.IndexFunc(all[:n], func(q string) bool {
			pair := http.NewServeMux()
			return register(pair, p) == nil && register(pair, q) != nil
		})
		return fmt.Errorf("the pattern %q must not conflict with %q: each matches requests of the other", p, all[with])
	}
	return nil
}

// pattern is a parsed pattern, with the options that it is given to.
type pattern struct {
	text   string
	route  *route // nil: of the form "/service/method"
	prefix string // of all paths that the pattern matches, unescaped
	rank   [4]int // of the patterns that match a method, the most specific one has the largest
	use    use
	rule   *Rule // nil: none
}

// use is a set of options that patterns are given to.
type use uint8

const (
	readOnly use = 1 << iota
	methods
	waitForMessage
	singleRequest
)

// parse returns p with a text. Of two routes that match a request, the one that [http.ServeMux]
// prefers is larger in each of the last three numbers of the rank, or equal, unless only one has a
// host.
func (p pattern) parse(text string) *pattern {
	p.text = text
	if !isRoute(text) {
		if p.prefix = text; strings.ContainsAny(text, wild) {
			p.prefix = text[:strings.LastIndexByte(text[:strings.IndexAny(text, wild)], '/')+1]
		}
		n := literals(text)
		p.rank = [4]int{0, 1, -min(len(text)-n, 1), n}
		return &p
	}
	r := parseRoute(text)
	host, ends, exact, n := min(len(r.host), 1), 1, 0, len(r.method)+len(r.host)
	for _, s := range r.segments {
		n++ // the slash
		if exact == 0 {
			p.prefix += "/"
		}
		switch {
		case isRest(s):
			ends, exact = 0, -1
		case isWild(s):
			exact = -1
		default:
			if n += len(s); exact == 0 && s != "{$}" {
				p.prefix += s
			}
		}
	}
	p.route, p.rank = &r, [4]int{host, ends, exact, n}
	return &p
}

// wild has the special characters of [path.Match].
const wild = `*?[\`

// name is a parsed name of a method. For HTTP any path is a route.
type name struct {
	text    string
	route   *route   // nil: none
	samples []string // see route.samples; unescaped without a route
}

func parseName(text string, http bool) name {
	if !isRoute(text) && !(http && strings.HasPrefix(text, "/")) {
		return name{text: text, samples: []string{text}}
	}
	r := parseRoute(text)
	return name{text: text, route: &r, samples: r.samples()}
}

// path returns a path of the name, unescaped.
func (n *name) path(sample string) string {
	if n.route != nil {
		sample, _ = url.PathUnescape(sample)
	}
	return sample
}

// covers reports whether a pattern matches a method: its name or, if the name is a route, every
// request of the route.
func (p *pattern) covers(n name) bool {
	return p.text == n.text || !slices.ContainsFunc(n.samples, func(sample string) bool {
		if p.route == nil {
			ok, _ := path.Match(p.text, n.path(sample))
			return !ok
		}
		return n.route == nil || !p.route.matches(n.route.method, n.route.host, sample)
	})
}

// matches reports whether a pattern matches a request.
func (p *pattern) matches(req *http.Request) bool {
	if p.route == nil {
		ok, _ := path.Match(p.text, req.URL.Path)
		return ok
	}
	host := ""
	if p.route.host != "" {
		host = (&url.URL{Host: cmp.Or(req.Host, req.URL.Host)}).Hostname()
	}
	return p.route.matches(cmp.Or(req.Method, http.MethodGet), host, cmp.Or(req.URL.EscapedPath(), "/"))
}

// compare orders patterns by how specific they are.
func (p *pattern) compare(q *pattern) int {
	return cmp.Or(slices.Compare(p.rank[:], q.rank[:]), strings.Compare(p.text, q.text))
}

// special matches an escaped character, and what does not stand for itself.
var special = regexp.MustCompile(`(?s)\\(.)|\[(?:\\.|[^\]\\])*\]|[*?]`)

// literals counts the characters of a pattern that stand for themselves.
func literals(p string) int { return len(special.ReplaceAllString(p, "$1")) }

// route is a parsed pattern of [http.ServeMux].
type route struct {
	method, host string
	segments     []string // of the path; the last one is "" if the path ends with a slash
}

func parseRoute(p string) (r route) {
	at := strings.IndexByte(p, '/')
	method, host, found := strings.Cut(p[:at], " ")
	if r.host = strings.TrimLeft(host, " \t"); found {
		r.method = method
	} else {
		r.host = method
	}
	r.segments = strings.Split(p[at+1:], "/")
	for i, s := range r.segments {
		if literal, err := url.PathUnescape(s); err == nil && s != "{$}" && !isWild(s) {
			r.segments[i] = literal
		}
	}
	return r
}

// isRest reports whether a segment of a pattern matches the rest of a path.
func isRest(segment string) bool { return segment == "" || strings.HasSuffix(segment, "...}") }

func isWild(segment string) bool { return strings.HasPrefix(segment, "{") && segment != "{$}" }

// matches reports whether the route matches a request. Path is escaped.
func (r route) matches(method, host, path string) bool {
	if r.host != "" && r.host != host ||
		r.method != "" && r.method != method && (r.method != http.MethodGet || method != http.MethodHead) {
		return false
	}
	rest, more := strings.CutPrefix(path, "/")
	for _, s := range r.segments {
		if !more || isRest(s) {
			return more
		}
		var part string
		switch part, rest, more = strings.Cut(rest, "/"); {
		case s == "{$}":
			return part == "" && !more
		case isWild(s):
			if part == "" {
				return false
			}
		case part != s:
			if literal, err := url.PathUnescape(part); err != nil || literal != s {
				return false
			}
		}
	}
	return !more
}

// samples returns paths that another route matches only if it matches all paths of r: a wildcard
// stands for itself, and the rest of a path is empty or long.
func (r route) samples() []string {
	n, path := len(r.segments)-1, "/"
	for _, s := range r.segments[:n] {
		path += url.PathEscape(s) + "/"
	}
	switch last := r.segments[n]; {
	case last == "{$}":
		return []string{path}
	case isRest(last):
		return []string{path, path + "%7B%7D/%7B%7D"}
	default:
		return []string{path + url.PathEscape(last)}
	}
}
