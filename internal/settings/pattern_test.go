package settings_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// muxed is a handler of a mux, and not a redirect.
type muxed struct{ http.Handler }

// add adds a pattern to a mux, and returns the value of its panic.
func add(mux *http.ServeMux, pattern string) (conflict any) {
	defer func() { conflict = recover() }()
	mux.Handle(pattern, muxed{})
	return nil
}

// TestPatterns_AsServeMux draws patterns and requests. Net/http's mux accepts the same patterns,
// and chooses the same one for each request.
func TestPatterns_AsServeMux(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	conflicts, matched := 0, 0
	for range 400 {
		mux, patterns := http.NewServeMux(), []string{}
		for range 5 {
			p := pick("", "", "GET ", "HEAD ", "POST ") + pick("", "", "", "h.com")
			for n := range 1 + rnd.IntN(3) {
				p += "/" + pick("a", "a", "b", "%61", "{x"+string(rune('0'+n))+"}")
			}
			p += pick("", "", "/", "/{rest...}", "/{$}")
			if p[0] != 'G' && p[0] != 'H' && p[0] != 'P' && !strings.Contains(p, "{") || slices.Contains(patterns, p) {
				continue // some of these have the form of gRPC's patterns
			}
			wrong := add(mux, p)
			_, err := hedge.New(hedge.WithReadOnlyMethods(append(patterns, p)...))
			if (wrong != nil) != (err != nil) {
				t.Fatalf("%q after %q: error %v, net/http %v", p, patterns, err, wrong)
			}
			if wrong != nil {
				if conflicts++; !strings.Contains(err.Error(), p) {
					t.Fatalf("the error does not name %q: %v", p, err)
				}
				continue
			}
			patterns = append(patterns, p)
		}
		if len(patterns) == 0 {
			continue
		}
		c := (*registry.Registry)(hedgetest.New(t, hedge.WithReadOnlyMethods(patterns...))).Config()
		for range 20 {
			path := ""
			for range rnd.IntN(5) {
				path += "/" + pick("a", "b", "c", "%61", "a%2Fb")
			}
			req, _ := http.NewRequest(pick("GET", "HEAD", "POST"),
				"http://"+pick("h.com", "h.com:80", "other")+path+pick("", "/"),
				nil)
			handler, want := mux.Handler(req)
			if _, ours := handler.(muxed); !ours { // a redirect that adds the slash
				want = ""
			}
			if got, _, reads := c.Select(req); want != "" && got != want || reads != (got != req.Method) {
				t.Fatalf("%s %s is selected by %q, %v; want %q of %q", req.Method, req.URL, got, reads, want, patterns)
			} else if reads {
				matched++
			}
		}
	}
	if conflicts < 100 || matched < 500 {
		t.Errorf("%d conflicts, %d requests matched: too few to compare", conflicts, matched)
	}
}

func TestPatterns_Wrong(t *testing.T) {
	const form = `must have the form "/service/method"`
	wrong := func(opt hedge.Option, want ...string) {
		t.Helper()
		_, err := hedge.New(hedge.WithAllMethods(), opt)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want %q", err, w)
			}
		}
	}
	for p, want := range map[string]string{
		"":                "must have the form",
		"GET":             "must have the form",
		"/pkg.Svc":        "must have the form",
		"/pkg.Svc/":       "must have the form",
		"pkg.Svc/Get":     "must have the form",
		"get /users/{id}": "must have the form",
		"//x":             "must have the form",
		"GET /users/*":    "wildcards of the form {name}",
		"/a/b/c*":         "wildcards of the form {name}",
		"GET /a?q={x}":    "wildcards of the form {name}",
		"/a//b":           "clean path",
		"GET /a/../b":     "unclean path",
		"/a/{x}/{x}":      "duplicate wildcard",
		"/a/{x...}/b":     "must be a pattern of http.ServeMux",
		"/a/{x":           "must be a pattern of http.ServeMux",
		"/a/[":            "malformed pattern",
		"/a/\xff":         "must be valid UTF-8",
	} {
		wrong(hedge.WithMethods(p), "WithMethods(", want)
		wrong(hedge.WithReadOnlyMethods("/a/b", p), "WithReadOnlyMethods(", want)
		wrong(hedge.WithMethodOptions(p), "WithMethodOptions(", want)
	}
	wrong(hedge.WithSingleRequest("GET /users/{id}"), form)
	wrong(hedge.WithWaitForMessage("/a"), form)

	x, y := "GET /{x}/b", "GET /a/{y}"
	wrong(hedge.WithMethods(x, y), x, y)
}

// TestRule20_TheMostSpecificPattern: of the patterns that match a request, the most specific one
// names it, and the options of all of them apply, in that order.
func TestRule20_TheMostSpecificPattern(t *testing.T) {
	hedges := func(pattern string, n int) hedge.Option {
		return hedge.WithMethodOptions(pattern, hedge.WithMaxHedges(n))
	}
	s := hedgetest.New(t, hedge.WithReadOnlyMethods("GET /users/", "/users/*", "POST /_search"),
		hedges("GET /users/{id}", 2), hedges("GET /users/me", 3), hedges("/{any...}", 4),
		hedges("example.com/{any...}", 0), hedges("/pkg.Svc/*", 3),
		hedges("GET b/users/{id}/orders", 3))
	for _, tc := range []struct {
		method, url string
		name        string
		hedges      int // the maximum
		reads       bool
	}{
		{method: "GET", url: "https://a/users/17", name: "GET /users/{id}", hedges: 2, reads: true},
		{method: "HEAD", url: "https://a/users/17", name: "GET /users/{id}", hedges: 2, reads: true},
		{method: "GET", url: "https://a/users/me", name: "GET /users/me", hedges: 3, reads: true},
		{method: "PUT", url: "https://a/users/me", name: "/users/*", hedges: 4, reads: true},
		{method: "PUT", url: "https://a/teams/17", name: "/{any...}", hedges: 4},
		{method: "GET", url: "https://a/users/17/orders", name: "GET /users/", hedges: 4, reads: true},
		{method: "GET", url: "https://b/users/17/orders", name: "GET b/users/{id}/orders", hedges: 3, reads: true},
		{method: "POST", url: "https://b/_search", name: "POST /_search", hedges: 4, reads: true},
		{method: "GET", url: "https://example.com:8443/users/me", name: "example.com/{any...}", hedges: 0, reads: true},
	} {
		r := (*registry.Registry)(s)
		req, _ := http.NewRequest(tc.method, tc.url, nil)
		target := req.URL.Scheme + "://" + req.URL.Host
		name, _, reads := r.Config().Select(req)
		got := r.Method(target, name, time.Now()).Settings()
		if name != tc.name || reads != tc.reads || got.MaxHedges != tc.hedges || got.OnlyReads && !tc.reads {
			t.Errorf("%s %s: %q, %d hedges by %q, reads %v; want %+v", tc.method, tc.url, name, got.MaxHedges, got.Applied,
				reads, tc)
		}
	}
	of := (*registry.Registry)(s).Method("dns:///a", "/users/Get", time.Now()).Settings()
	if !of.Selected || !slices.Equal(of.Applied, nil) {
		t.Errorf("a gRPC method is selected by /users/*, and routes do not match it: %v, %q", of.Selected, of.Applied)
	}
}

func TestIndex_AsPathMatch(t *testing.T) {
	parts := []string{"a", "b", "a*", "?", "[ab]", `\a`, `\*`, "*"}
	var patterns []string
	var opts []hedge.Option
	for _, service := range parts {
		for _, method := range parts {
			p := "/" + service + "/" + method
			patterns = append(patterns, p)
			opts = append(opts, hedge.WithMethodOptions(p))
		}
	}
	s := hedgetest.All(t, append(opts, hedge.WithMethodOptions("GET /a/{x}"), hedge.WithMethodOptions("/a/b/c"))...)
	for _, name := range []string{"/a/a", "/a/b", "/b/ab", "/*/a", "/ab/*", "/a/*", "/c/c", "a/b", "/a", "a", "", "//a"} {
		var want []string
		for _, p := range patterns {
			if ok, _ := path.Match(p, name); ok {
				want = append(want, p)
			}
		}
		c := configFor(s, "t", name)
		if got := slices.Sorted(slices.Values(c.Applied)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("the rules for %q are %q, want %q", name, got, want)
		}
	}
}

// TestRules_Thousands: the cost of rules grows with their number, not with its square, that of a
// method does not grow with it, and targets with the same rules share a configuration.
func TestRules_Thousands(t *testing.T) {
	allocated := func(do func()) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	made := func(rules int) (s *hedge.Scheduler, bytes float64) {
		opts := []hedge.Option{hedge.WithControl(5)}
		for i := range rules {
			opts = append(opts, hedge.WithMethodOptions(fmt.Sprintf("/pkg.S%d/Get%d", i%50, i), hedge.WithMaxHedges(1)))
		}
		bytes = allocated(func() { s = hedgetest.All(t, append(opts, hedge.WithTargetOptions("t*", hedge.WithMinDelay(0)))...) })
		return s, bytes
	}
	ofFew, few := made(500)
	s, many := made(4_000)
	if many > 12*few {
		t.Errorf("New allocates %.0f bytes for 4,000 rules, and %.0f for 500", many, few)
	}
	calls := func(s *hedge.Scheduler) float64 {
		return allocated(func() {
			for i := range 20 {
				m := (*registry.Registry)(s).Method("t1", fmt.Sprintf("/pkg.S%d/Get%d", i%50, i), time.Now())
				if m.Settings().MaxHedges != 1 {
					t.Errorf("the rule for %s is not applied", m.Name)
				}
			}
		})
	}
	less, more := calls(ofFew), calls(s)
	if more > 1.5*less {
		t.Errorf("20 methods allocate %.0f bytes with 4,000 rules, and %.0f with 500", more, less)
	}
	c := (*registry.Registry)(s).Config()
	if c.ForTarget("t1") != c.ForTarget("t2") || c.ForTarget("t1") == c.ForTarget("https://t1") {
		t.Error("targets must share a configuration if the same rules apply to them, and no other")
	}
}

// TestRoutes_Thousands: a new name, and a request, cost the same with 4,000 routes as with 40.
func TestRoutes_Thousands(t *testing.T) {
	bytes := func(routes int) (name, request float64) {
		patterns, rules := []string{}, []hedge.Option{}
		for i := range routes {
			patterns = append(patterns, fmt.Sprintf("GET /api/v1/r%d/{id}", i), fmt.Sprintf("POST /api/v1/r%d", i))
			rules = append(rules, hedge.WithMethodOptions(fmt.Sprintf("/api/v1/r%d/{id}", i), hedge.WithMaxHedges(1)))
		}
		s := hedgetest.New(t, append(rules, hedge.WithReadOnlyMethods(patterns...))...)
		r := (*registry.Registry)(s)
		r.Method("http://t", "GET", time.Now())
		req, _ := http.NewRequest("GET", "http://t/api/v1/r7/17", nil)
		name = testing.AllocsPerRun(20, func() {
			if s := r.Config().For("http://t", "GET /api/v1/r7/{id}"); !s.OnlyReads || s.MaxHedges != 1 {
				t.Errorf("the settings are not those of the route: %d hedges, by %q", s.MaxHedges, s.Applied)
			}
		})
		return name, testing.AllocsPerRun(20, func() {
			if name, _, reads := r.Config().Select(req); name != "GET /api/v1/r7/{id}" || !reads {
				t.Errorf("the request has the name %q", name)
			}
		})
	}
	name, request := bytes(4_000)
	if n, r := bytes(40); name > n || request > 0 || r > 0 {
		t.Errorf("%v allocations for a new name with 4,000 routes, and %v with 40; %v and %v for a request",
			name, n, request, r)
	}
}

// TestRules_WithoutTheLock: a rule is applied while calls of other new methods go on.
func TestRules_WithoutTheLock(t *testing.T) {
	var r *registry.Registry
	var depth int
	rule := settings.Rule{Pattern: "/s/*", Apply: func(*settings.Config) {
		if depth++; depth == 1 {
			r.Method("other", fmt.Sprint("/other/", depth), time.Now()) // would wait for the lock for ever
		}
		depth--
	}}
	c := settings.DefaultConfig()
	c.All, c.MethodRules = true, []settings.Rule{rule}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	r = registry.New(c)
	r.Method("t", "/s/M", time.Now())
	r.Method("t", "/s/N", time.Now())
	_ = r.Update(c)
}

// TestUnused has patterns. Some match nothing in use.
func TestUnused(t *testing.T) {
	c := settings.Config{
		ReadOnly:    []string{"/shop.Catalog/*", "/shop.Catlog/*", "/shop.Items/Gat", "/other.Svc/*", "/shop.Items/[GL]*"},
		Methods:     []string{"GET /items/{id}", "GET /itms/{id}"},
		MethodRules: []settings.Rule{{Pattern: "/shop.Items/Get"}, {Pattern: "/shop.Items/Lst"}},
		TargetRules: []settings.Rule{{Pattern: "dns:///shop*"}, {Pattern: "dns:///shpo:443"}},
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	got := c.Unused([][2]string{{"dns:///shop:443", "/shop.Catalog/Get"}, {"dns:///shop:443", "/shop.Items/Get"},
		{"dns:///shop:443", "/shop.Items/List"}, {"http://shop", "GET /items/{id}"}})
	want := []string{"/other.Svc/*", "/shop.Catlog/*", "/shop.Items/Gat", "/shop.Items/Lst",
		"GET /itms/{id}", "dns:///shpo:443"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
