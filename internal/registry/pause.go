package registry

import (
	"os"
	"strconv"

	"go.uber.org/atomic"
)

// The reasons why hedging is paused.
const (
	BySwitch = "HEDGE_DISABLED" // the environment variable
	ByPause  = "Pause"
)

// Pause holds why hedging is paused: BySwitch, ByPause, or "" if it is not paused. It is safe for
// concurrent use.
type Pause struct{ atomic.String }

// readSwitch reads the environment variable. In an emergency, any value that is not clearly a no
// must count as a yes.
func (p *Pause) readSwitch() {
	value := os.Getenv(BySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		p.Store(BySwitch)
	}
}

func (m *Method) Paused() bool { return m.Target.registry.pause.Load() != "" }
