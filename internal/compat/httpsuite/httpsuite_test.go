package main

import (
	"strings"
	"testing"

	"github.com/grpchedge/hedge/internal/compat/suite"
)

func TestKnown(t *testing.T) {
	if _, err := suite.ParseList(known, every); err != nil {
		t.Error(err)
	}
}

func TestEdit(t *testing.T) {
	for source, want := range map[string]string{
		"tr := c.Transport.(*Transport)":           "tr := suiteUnwrap(c.Transport)",
		"tr := ts.Client().Transport.(*Transport)": "tr := suiteUnwrap(ts.Client().Transport)",
		"f(cst.c.Transport.(*Transport), 1)":       "f(suiteUnwrap(cst.c.Transport), 1)",
		"DefaultTransport.(*Transport).Clone()":    "DefaultTransport.(*Transport).Clone()",
	} {
		const head = "// Package\npackage http_test\n"
		if got, err := edit("a_test.go", head+source); err != nil || got != head+want {
			t.Errorf("%q becomes %q (%v), want %q", source, strings.TrimPrefix(got, head), err, want)
		}
	}
	if _, err := edit("clientserver_test.go", "\n\npackage http_test\n"); err == nil {
		t.Error("a clientserver_test.go that the edit does not fit must be an error")
	}
}
