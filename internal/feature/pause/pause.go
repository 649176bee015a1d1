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
	current atomic.Pointer[paused] // nil if nothing is, which costs calls least

	mu sync.Mutex // serialises changes
}

// paused never changes: a change makes a new one.
type paused struct {
	all     string              // why everything is paused; "" if it is not
	targets map[string]struct{} // by name
	methods map[string]struct{} // by full name, at every target
}

// Read reads the switch of the environment. Any value that is not clearly a no counts as a yes, because the switch is thrown in an emergency.
func (p *Pauses) Read() {
	value := os.Getenv(BySwitch)
	if yes, err := strconv.ParseBool(value); value != "" && (yes || err != nil) {
		p.All(BySwitch)
	}
}

// Everything reports whether all hedging is paused.
func (p *Pauses) Everything() bool {
	now := p.current.Load()
	return now != nil && now.all != ""
}

// By returns why calls of a method are not hedged now; "" if they may be.
func (p *Pauses) By(target, method string) string {
	now := p.current.Load()
	if now == nil {
		return ""
	}
	if now.all != "" {
		return now.all
	}
	if _, ok := now.targets[target]; ok {
		return ForTarget
	}
	if _, ok := now.methods[method]; ok {
		return ForMethod
	}
	return ""
}

// Admit is the gate: calls that are paused while they are in flight get no more hedges.
func (p *Pauses) Admit(d *feature.Due) feature.Verdict {
	if p.By(d.Target, d.Method) != "" {
		return feature.Never(stats.Paused)
	}
	return feature.Pass
}

// All pauses everything, from the next call on, and says why; "" undoes that.
func (p *Pauses) All(why string) {
	p.change(func(n *paused) { n.all = why })
}

// Target pauses one target, by name, or resumes it.
func (p *Pauses) Target(name string, on bool) {
	p.change(func(n *paused) { n.targets = set(n.targets, name, on) })
}

// Method pauses one full method, at every target, or resumes it.
func (p *Pauses) Method(name string, on bool) {
	p.change(func(n *paused) { n.methods = set(n.methods, name, on) })
}

// change changes a copy of what is paused, and puts it into force.
func (p *Pauses) change(change func(*paused)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var next paused
	if now := p.current.Load(); now != nil {
		next = *now
	}
	change(&next)
	if next.all == "" && len(next.targets) == 0 && len(next.methods) == 0 {
		p.current.Store(nil)
		return
	}
	p.current.Store(&next)
}

// set returns a copy of names, with or without one.
func set(names map[string]struct{}, name string, on bool) map[string]struct{} {
	names = maps.Clone(names)
	if names == nil {
		names = map[string]struct{}{}
	}
	names[name] = struct{}{}
	if !on {
		delete(names, name)
	}
	return names
}
