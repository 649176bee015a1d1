// Package pause stops all hedging for a while.
package pause

import (
	"os"
	"strconv"

	"go.uber.org/atomic"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/stats"
)

// Why hedging is paused.
const (
	BySwitch = "HEDGE_DISABLED" // the variable of the environment
	ByPause  = "Pause"
)

// Pause says whether and why hedging is paused: BySwitch, ByPause, or "" if it is not. All methods may be called concurrently.
type Pause struct{ atomic.String }

// Read reads the switch of the environment. In an emergency, any value that is not clearly a no must count as a yes.
func (p *Pause) Read() {
	value := os.Getenv(BySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		p.Store(BySwitch)
	}
}

// Admit is the gate: calls in flight get no more hedges.
func (p *Pause) Admit(*feature.Due) feature.Verdict {
	return feature.Never(stats.Paused).If(p.Load() != "")
}
