package debug

import (
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
)

// configuration has the options for the page.
type configuration struct {
	Options []string  `json:"options"` // in force; a value that is a Go function is left out
	Since   time.Time `json:"since"`
	Refused *refusal  `json:"refused,omitempty"`
}

// refusal is the last update that was refused.
type refusal struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
	// Last reports whether no update was accepted after it.
	Last bool `json:"last"`
}

func newConfiguration(of registry.Configured) configuration {
	c := configuration{Options: of.Options, Since: of.At}
	if of.Refused != nil {
		c.Refused = &refusal{of.RefusedAt, strings.ReplaceAll(of.Refused.Error(), "\n", "; "), !of.RefusedAt.Before(of.At)}
	}
	return c
}
