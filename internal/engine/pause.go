package engine

import (
	"maps"
	"strconv"
)

// Why hedging is paused.
const (
	PausedBySwitch   = "HEDGE_DISABLED"
	PausedByPause    = "Pause"
	PausedForTarget  = "PauseTarget"
	PausedForMethod  = "PauseMethod"
	disabledVariable = PausedBySwitch
)

// pauses says what is paused. It never changes: a change makes a new one.
type pauses struct {
	all     string              // why everything is paused; "" if it is not
	targets map[string]struct{} // by name
	methods map[string]struct{} // by full name, at every target
}

// everything reports whether all hedging is paused.
func (p *pauses) everything() bool { return p != nil && p.all != "" }

// pausedBy returns why calls of a method are not hedged now; "" if they may be.
func (e *Engine) pausedBy(m *method) string {
	p := e.paused.Load()
	if p == nil {
		return ""
	}
	if p.all != "" {
		return p.all
	}
	if _, ok := p.targets[m.target.name]; ok {
		return PausedForTarget
	}
	if _, ok := p.methods[m.name]; ok {
		return PausedForMethod
	}
	return ""
}

// Pause stops hedging, from the next call on, until Resume. Latencies are still learned.
func (e *Engine) Pause() { e.pauseBy(PausedByPause) }

// Resume undoes Pause, and the switch of the environment.
func (e *Engine) Resume() { e.pauseBy("") }

func (e *Engine) pauseBy(why string) {
	e.changePauses(func(p *pauses) { p.all = why })
}

// PauseTarget does for one target, by name, what Pause does for all, until ResumeTarget.
func (e *Engine) PauseTarget(name string) {
	e.changePauses(func(p *pauses) { p.targets = with(p.targets, name) })
}

// ResumeTarget undoes PauseTarget.
func (e *Engine) ResumeTarget(name string) {
	e.changePauses(func(p *pauses) { p.targets = without(p.targets, name) })
}

// PauseMethod does for one full method, at every target, what Pause does for all, until ResumeMethod.
func (e *Engine) PauseMethod(name string) {
	e.changePauses(func(p *pauses) { p.methods = with(p.methods, name) })
}

// ResumeMethod undoes PauseMethod.
func (e *Engine) ResumeMethod(name string) {
	e.changePauses(func(p *pauses) { p.methods = without(p.methods, name) })
}

// changePauses changes a copy of what is paused, and puts it into force: nil if nothing is paused, which costs calls least.
func (e *Engine) changePauses(change func(*pauses)) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var p pauses
	if old := e.paused.Load(); old != nil {
		p = *old
	}
	change(&p)
	if p.all == "" && len(p.targets) == 0 && len(p.methods) == 0 {
		e.paused.Store(nil)
		return
	}
	e.paused.Store(&p)
}

func with(set map[string]struct{}, name string) map[string]struct{} {
	set = maps.Clone(set)
	if set == nil {
		set = map[string]struct{}{}
	}
	set[name] = struct{}{}
	return set
}

func without(set map[string]struct{}, name string) map[string]struct{} {
	set = maps.Clone(set)
	delete(set, name)
	return set
}

// disabled reports whether the environment switches hedging off. What is not clearly a no is a yes, because the switch is
// thrown in an emergency.
func disabled(value string) bool {
	yes, err := strconv.ParseBool(value)
	return value != "" && (yes || err != nil)
}
