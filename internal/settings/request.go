package settings

import (
	"cmp"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// HTTPRule states which HTTP requests can be selected.
const HTTPRule = `WithAllMethods selects GET, HEAD, OPTIONS, TRACE and QUERY requests, and a pattern, ` +
	`such as WithReadOnlyMethods("POST /_search"), any other`

// IsHTTP reports whether package hedgehttp has named a target.
func IsHTTP(target string) bool {
	return strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://")
}

// Selector is a pattern that requests are compared with.
type Selector struct {
	Pattern string
	Route   *route // nil: of the other form
	Target  string // the pattern of the targets that it is for; "": all
	Reads   bool   // WithReadOnlyMethods selects its requests
	Selects bool   // WithMethods selects its requests
}

// Prepare completes a configuration: the index of its rules, and its selectors, the most specific
// one first. It returns an error if patterns conflict.
func (c *Config) Prepare() error {
	requests := Config{HTTP: true}
	c.Selectors, c.Index = nil, NewIndex(c.MethodRules)
	add := func(target string, patterns ...string) {
		for _, p := range patterns {
			s := Selector{Pattern: p, Target: target, Reads: requests.matchAny(c.ReadOnly, p),
				Selects: requests.matchAny(c.Methods, p)}
			if isRoute(p) {
				r := parseRoute(p)
				s.Route = &r
			}
			c.Selectors = append(c.Selectors, s)
		}
	}
	all := slices.Concat(c.ReadOnly, c.Methods)
	for _, rule := range c.MethodRules {
		all = append(all, rule.Pattern)
	}
	add("", all...)
	err := checkConflicts(all)
	for _, rule := range c.TargetRules {
		add(rule.Pattern, rule.Methods...)
		if err == nil && len(rule.Methods) > 0 {
			err = checkConflicts(slices.Concat(all, rule.Methods))
		}
	}
	slices.SortStableFunc(c.Selectors, func(a, b Selector) int {
		return slices.Compare(specificity(b.Pattern), specificity(a.Pattern))
	})
	return err
}

// Select compares a request to a target with the selectors. It returns the name of the request, for
// which see hedgehttp.Transport, and whether a pattern of WithMethods and of WithReadOnlyMethods
// matches it.
func (c *Config) Select(target string, req *http.Request) (name string, selected, reads bool) {
	pattern := ""
	escaped := "" // the path
	for i := range c.Selectors {
		if i == 0 {
			escaped = cmp.Or(req.URL.EscapedPath(), "/")
		}
		if s := &c.Selectors[i]; (s.Target == "" || matchName(s.Target, target)) && s.matches(req, escaped) {
			pattern = cmp.Or(pattern, s.Pattern)
			selected, reads = selected || s.Selects, reads || s.Reads
		}
	}
	if of := req.Pattern; of != "" && of != "/" && (pattern == "" || matches(pattern, of, true)) {
		pattern = of
	}
	if strings.Contains(req.URL.Path, ".") && isRPC(req) {
		name = fullMethod.FindString(req.URL.Path)
	}
	return cmp.Or(name, pattern, verbOf(req.Method)), selected, reads
}

func (s *Selector) matches(req *http.Request, escapedPath string) bool {
	if s.Route == nil {
		ok, _ := path.Match(s.Pattern, req.URL.Path)
		return ok
	}
	host := ""
	if s.Route.Host != "" {
		host = (&url.URL{Host: cmp.Or(req.Host, req.URL.Host)}).Hostname()
	}
	return s.Route.matches(cmp.Or(req.Method, http.MethodGet), host, escapedPath)
}

// verbOf returns the name of requests that have no other one. The clients of a reverse proxy may
// send any HTTP method.
func verbOf(method string) string {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect:
		return method
	}
	if IsSafe(method) {
		return cmp.Or(method, http.MethodGet)
	}
	return "other"
}

// fullMethod matches the full method in which a path ends. A service without a package is not
// recognized.
var fullMethod = regexp.MustCompile(`/([a-zA-Z_]\w*\.)+[A-Z]\w*/[a-zA-Z_]\w*$`)

// isRPC reports whether a request is one of gRPC, gRPC-Web, Connect or Twirp. The path of any other
// request may have identifiers that look like a full method.
func isRPC(req *http.Request) bool {
	mediaType, _, _ := strings.Cut(strings.ToLower(req.Header.Get("Content-Type")), ";")
	switch kind, _, _ := strings.Cut(strings.TrimSpace(mediaType), "+"); kind {
	case "application/grpc", "application/grpc-web", "application/grpc-web-text", "application/connect",
		"application/proto", "application/protobuf": // Connect's and Twirp's
		return true
	}
	return req.Header.Get("Connect-Protocol-Version") != "" || req.Header.Get("Twirp-Version") != "" ||
		IsSafe(req.Method) && req.URL.Query().Get("connect") == "v1"
}

// IsSafe reports whether HTTP defines a method as one that only reads.
func IsSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY":
		return true
	}
	return false
}
