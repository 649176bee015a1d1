// Package settings holds the values of the options, and resolves them for each method of a target:
// the rules that apply to it, and whether it is selected.
package settings

import (
	"fmt"

	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Settings are a configuration's values for one method of one target. They never change.
type Settings struct {
	*Config         // with the rules for the target and the method applied
	Target  *Config // with the rules for the target applied

	Learning *trigger.Config
	Selected bool // the options select it for hedging
	Named    bool // by a pattern or its descriptor, not by WithAllMethods or a hedgingPolicy alone

	Described       bool // false if it is not selected because its descriptor is missing
	WaitsForMessage bool
	SingleRequest   bool
	OnlyReads       bool               // NO_SIDE_EFFECTS or WithReadOnlyMethods
	Policy          *rpc.HedgingPolicy // the service config's; nil: none
}

// For returns the settings of a method, by the rules that match it and its target.
func (c *Config) For(targetName, method string) *Settings {
	target := c.ForTarget(targetName)
	r := c.ForMethod(target, method)
	policy := r.ServiceConfig.Policy(method)
	if r == target && policy != nil {
		own := *r
		r = &own
	}
	if r != target { // a copy for this method
		r.TargetRules, r.MethodRules, r.Index = nil, nil, nil        // they have been applied
		r.BudgetPercent = min(r.BudgetPercent, target.BudgetPercent) // hedges are paid by both budgets
	}
	s := &Settings{Config: r, Target: target, Policy: policy}
	level, _ := idempotencyLevel(method)
	s.OnlyReads = level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS || r.matchAny(r.ReadOnly, method)
	s.WaitsForMessage = r.matchAny(r.WaitForMessage, method)
	s.SingleRequest = r.matchAny(r.SingleRequest, method)
	s.Selected, s.Described = r.Selects(method)
	s.Named = s.Selected && (r.IdempotentOnly || r.matchAny(r.ReadOnly, method) || r.matchAny(r.Methods, method))
	s.Learning = r.learning()
	if policy != nil {
		r.Final, r.Failover = rpc.CodesBut(policy.NonFatal), 0
		s.Learning.Auto = false // the policy fixes the delays, so there is nothing to choose
	}
	return s
}

// Compared describes how the calls of the method are hedged, for the comparison with its control
// group; empty without a group. It covers all settings except the ones cleared here, so that a
// forgotten setting only ends a comparison too early. Functions are equal if their code is.
func (s *Settings) Compared() string {
	if s.Control == 0 {
		return ""
	}
	c := *s.Config
	c.Control, c.Applied = 0, nil
	c.Reporting, c.MaxMethods, c.Snapshots = Reporting{}, 0, nil
	// Their effect on the method is in s.
	c.Methods, c.ReadOnly, c.IdempotentOnly, c.All, c.WaitForMessage = nil, nil, false, false, nil
	c.TargetRules, c.MethodRules, c.Index, c.Selectors, c.ServiceConfig, c.HedgeLimit = nil, nil, nil, nil, nil, nil
	return fmt.Sprint(c, *s.Learning, s.Policy, s.Throttling(), s.HedgeLimit, s.Selected, s.OnlyReads, s.WaitsForMessage)
}

// Unbudgeted reports whether the hedges of the method cost nothing.
func (s *Settings) Unbudgeted() bool {
	return s.Policy != nil && s.BudgetPercent >= MaxBudgetPercent
}

// Selects reports whether the options select a method for hedging. described is false if the method
// is not selected because its descriptor is missing.
func (c *Config) Selects(fullMethod string) (selected, described bool) {
	switch {
	case c.matchAny(c.ReadOnly, fullMethod):
		return true, true
	case len(c.Methods) > 0 && !c.matchAny(c.Methods, fullMethod):
		return false, true
	case c.IdempotentOnly:
		level, described := idempotencyLevel(fullMethod)
		return level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, described
	}
	return len(c.Methods) > 0 || c.All || len(c.ReadOnly) == 0 && c.ServiceConfig.Policy(fullMethod) != nil ||
		c.Off && !c.SelectsMethods(), true
}

// SelectsMethods reports whether an option selects the methods that may run twice. Without one, a
// configuration that is off selects all methods, so that they are learned.
func (c *Config) SelectsMethods() bool {
	return len(c.Methods) > 0 || len(c.ReadOnly) > 0 || c.IdempotentOnly || c.ServiceConfig != nil || c.All
}

// idempotencyLevel returns the idempotency_level in the descriptor of a method, and whether there
// is a descriptor.
func idempotencyLevel(fullMethod string) (level descriptorpb.MethodOptions_IdempotencyLevel, described bool) {
	m := rpc.Descriptor(fullMethod)
	if m == nil {
		return level, false
	}
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel(), true
}

// Throttling returns the configuration of each target's throttle; nil for none.
func (c *Config) Throttling() *rpc.Throttle {
	if c.ServiceConfig == nil {
		return nil
	}
	return c.ServiceConfig.Throttle
}
