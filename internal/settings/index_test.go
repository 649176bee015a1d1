package settings_test

import (
	"fmt"
	"net/http"
	"path"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestIndex_AsPathMatch: for a gRPC method, the rules with matching patterns are found.
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

// TestRules_Thousands: the cost of rules grows with their number, not with its square, that of a method does
// not grow with it, and targets with the same rules share a configuration.
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
