package settings_test

import (
	"slices"
	"testing"

	"github.com/grpchedge/hedge/internal/settings"
)

// TestUnused has patterns. Some match nothing in use.
func TestUnused(t *testing.T) {
	c := settings.Config{
		ReadOnly:    []string{"/shop.Catalog/*", "/shop.Catlog/*", "/shop.Items/Gat", "/other.Svc/*", "/shop.Items/[GL]*"},
		Methods:     []string{"GET /items/{id}", "GET /itms/{id}"},
		MethodRules: []settings.Rule{{Pattern: "/shop.Items/Get"}, {Pattern: "/shop.Items/Lst"}},
		TargetRules: []settings.Rule{{Pattern: "dns:///shop*"}, {Pattern: "dns:///shpo:443"},
			{Pattern: "*", Methods: []string{"/shop.Items/Put"}}},
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	got := c.Unused([][2]string{{"dns:///shop:443", "/shop.Catalog/Get"}, {"dns:///shop:443", "/shop.Items/Get"},
		{"dns:///shop:443", "/shop.Items/List"}, {"http://shop", "GET /items/{id}"}})
	want := []string{"/other.Svc/*", "/shop.Catlog/*", "/shop.Items/Gat", "/shop.Items/Lst", "/shop.Items/Put",
		"GET /itms/{id}", "dns:///shpo:443"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
