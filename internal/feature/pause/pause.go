// Package pause stops hedging for a while: of everything, of a target, or of a method.
package pause

import (
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/stats"
)

// Why hedging is paused.
const (
	BySwitch  = "HEDGE_DISABLED" // the variable of the environment
	ByPause   = "Pause"
	ForTarget = "PauseTarget"
	ForMethod = "PauseMethod"
)

// Pauses says what is paused. The zero value pauses nothing. All methods may be called concurrently.
type Pauses struct {
	current atomic.Pointer[map[pause]bool] // nil if nothing is paused, which costs calls least; a change makes a new map

	mu sync.Mutex // serialises changes
}

// pause is why hedging is paused, and of which target or full method; "" stands for everything.
type pause struct{ why, name string }

// Read reads the switch of the environment. In an emergency, any value that is not clearly a no must count as a yes.
func (p *Pauses) Read() {
	value := os.Getenv(BySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		p.Set(BySwitch, "", true)
	}
}

// Set pauses or resumes everything, or for a reason that is for one target or method, that of a name.
func (p *Pauses) Set(why, name string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[pause]bool{}
	if now := p.current.Load(); now != nil {
		maps.Copy(next, *now)
	}
	if next[pause{why, name}] = true; !on {
		delete(next, pause{why, name})
	}
	p.current.Store(&next)
	if len(next) == 0 {
		p.current.Store(nil)
	}
}

// By returns why calls of a method are not hedged now; "" if they may be.
func (p *Pauses) By(target, method string) string {
	if now := p.current.Load(); now != nil {
		return first(*now, pause{ByPause, ""}, pause{BySwitch, ""}, pause{ForTarget, target}, pause{ForMethod, method})
	}
	return ""
}

// Everything reports whether all hedging is paused.
func (p *Pauses) Everything() bool {
	now := p.current.Load()
	return now != nil && first(*now, pause{ByPause, ""}, pause{BySwitch, ""}) != ""
}

// first returns why the first of these is in force that is; "" if none is.
func first(now map[pause]bool, of ...pause) string {
	for _, p := range of {
		if now[p] {
			return p.why
		}
	}
	return ""
}

// Admit is the gate: calls that are paused while they are in flight get no more hedges.
func (p *Pauses) Admit(d *feature.Due) feature.Verdict {
	return feature.Never(stats.Paused).If(p.By(d.Target, d.Method) != "")
}
