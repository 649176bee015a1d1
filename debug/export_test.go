package debug

import (
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Text returns the plain text for a method at a time, under the default configuration.
func Text(t stats.Method, at time.Time) string {
	var b strings.Builder
	config := settings.DefaultConfig()
	s := view{At: at, Methods: []row{newRow(t, &config, stats.NoReason, at)}}
	if err := text.Execute(&b, &s); err != nil {
		return err.Error()
	}
	return b.String()
}
