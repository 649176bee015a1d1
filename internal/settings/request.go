package settings

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"
)

// HTTPRule states which HTTP requests can be selected.
const HTTPRule = `WithAllMethods selects GET, HEAD, OPTIONS, TRACE and QUERY requests, and a pattern, ` +
	`such as WithReadOnlyMethods("POST /_search"), any other`

// IsHTTP reports whether package hedgehttp has named a target.
func IsHTTP(target string) bool {
	return strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://")
}

// Select compares a request with the patterns that name or select requests. It returns the name of
// the request, for which see hedgehttp.Transport, and whether a pattern of WithMethods and of
// WithReadOnlyMethods matches it.
func (c *Config) Select(req *http.Request) (name string, selected, reads bool) {
	uses, best := use(0), (*pattern)(nil)
	for p := range c.Index.near(cmp.Or(req.URL.Path, "/")) {
		if p.use&(waitForMessage|singleRequest) == 0 && p.matches(req) {
			uses |= p.use
			if best == nil || p.compare(best) > 0 {
				best = p
			}
		}
	}
	pattern := ""
	if best != nil {
		pattern = best.text
	}
	if of := req.Pattern; of != "" && of != "/" && (best == nil || best.covers(parseName(of, true))) {
		pattern = of
	}
	if strings.Contains(req.URL.Path, ".") && IsRPC(req) {
		name = fullMethod.FindString(req.URL.Path)
	}
	return cmp.Or(name, pattern, verbOf(req.Method)), uses&methods != 0, uses&readOnly != 0
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

// IsRPC reports whether a request is one of gRPC, gRPC-Web, Connect or Twirp. The path of any other
// request may have identifiers that look like a full method.
func IsRPC(req *http.Request) bool {
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
