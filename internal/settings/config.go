// Package settings holds the values of the options, and resolves them for each method of a target:
// the rules that apply to it, and whether it is selected.
package settings

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Config holds the values that the options of package hedge set. The options check them; nothing
// else does.
type Config struct {
	// Which methods may be hedged.

	Methods, ReadOnly   []string // patterns
	IdempotentOnly, All bool

	// How they are hedged.

	trigger.Config               // of the learner, which does not set the delay if Fixed
	Fixed          bool          // the delay is Delay
	Delay          time.Duration // if Fixed
	DryRun         bool
	WarmupDelay    time.Duration // 0: no hedge while learning
	Final          rpc.Codes
	Failover       rpc.Codes // 0: none
	Class          func(ctx context.Context, method string, request any) string
	Acceptable     func(ctx context.Context, method string, reply any, err error) bool
	Control        float64            // the percentage of calls that are never hedged
	ServiceConfig  *rpc.ServiceConfig // nil: none
	HedgeLimit     *guard.HedgeLimit  // nil: none
	Guard          bool
	WaitForMessage []string // patterns
	SingleRequest  []string // patterns

	// For some targets and methods only.

	Off                      bool
	HTTP                     bool // the target is one of package hedgehttp
	AsGRPC                   bool // by a hedgingPolicy: see withPolicy
	TargetRules, MethodRules []Rule
	Index                    *Index   // of all patterns
	Applied                  []string // the patterns of the rules that were applied, the most specific last
	OwnBudget                bool     // a rule for the method sets its budget

	Reporting

	// Memory.

	MaxMethods int

	Options  []string // the texts of the options that made it
	Compared string   // Options as one text: while it lasts, hedged calls are compared with a control group
}

// kept are the options that an update keeps, repeated or not.
var kept = []string{"WithLogger", "WithTrace", "WithTargetName", "WithWindow", "WithMaxMethods"}

// Without returns the texts of options that others lacks, except options of kept.
func Without(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		name, _, _ := strings.Cut(text, "(")
		return slices.Contains(others, text) || slices.Contains(kept, name)
	})
}

// Reporting determines where events are reported, and under which names. An update does not change
// it.
type Reporting struct {
	Traces         Traces
	Traced, Logged bool                       // by WithTrace, by WithLogger
	TargetName     func(target string) string // nil: a target is named by itself
}

// MaxBudgetPercent is the largest budget: every call pays for the maximum number of hedges.
const MaxBudgetPercent = 400

func DefaultConfig() Config {
	return Config{
		Config: trigger.Config{
			Quantile: Fallback, Auto: true, Latest: race.Longest,
			MaxHedges: 2, BudgetPercent: 10, MinDelay: time.Millisecond, WarmupCalls: 20, Window: 30 * time.Second,
		},
		Final:      rpc.Answers,
		Guard:      true,
		MaxMethods: 5_000,
		Index:      &Index{},
	}
}

// Fallback is the quantile of latency that is the delay while the trigger has too few calls for a
// choice.
const Fallback = 0.90

// Traces receive events: the ones of hedge.Trace, and the ones below.
type Traces []func(event any)

// Emit passes an event to all traces. Without a trace it costs nothing. The caller must hold no
// lock.
func Emit[E any](to Traces, event E) {
	for _, trace := range to {
		trace(event)
	}
}

// SilenceNotice reports a late call at a backend that has been silent for a while.
type SilenceNotice struct{ Target, Address string }

// Notice is a log record. Without a target it reports an event, and is logged each time. With a
// target, which is an attribute besides Attrs, it reports a state that does not end.
type Notice struct {
	Level                   slog.Level
	Message, Target, Method string // Method: "" for all of the target
	Attrs                   []any
}

// Settings are a configuration's values for one method of one target, with the state that belongs
// to them. Settings that are in force never change.
type Settings struct {
	*Config         // with the rules for the target and the method applied
	Target  *Config // with the rules for the target applied

	Selected bool // the options select it for hedging
	Named    bool // by a pattern or its descriptor, not by WithAllMethods or a hedgingPolicy alone

	Described       bool // false if it is not selected because its descriptor is missing
	WaitsForMessage bool
	SingleRequest   bool
	OnlyReads       bool // NO_SIDE_EFFECTS or WithReadOnlyMethods

	// Set by package registry.

	Throttle *guard.Throttle // of the target; nil: none
	Groups   *control.Groups // nil: no control group
	Budgets  budget.Payers   // a dry run always has the method's own
}

// For returns the settings of a method, by the rules that match it and its target.
func (c *Config) For(targetName, method string) *Settings {
	target := c.ForTarget(targetName)
	r := c.ForMethod(target, method)
	if r != target { // a copy for this method
		r.TargetRules, r.MethodRules, r.Index = nil, nil, nil        // they have been applied
		r.BudgetPercent = min(r.BudgetPercent, target.BudgetPercent) // hedges are paid by both budgets
	}
	s := &Settings{Config: r, Target: target}
	level, _ := idempotencyLevel(method)
	uses, _ := c.Index.match(method, r.HTTP)
	s.OnlyReads = level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS || uses&readOnly != 0
	s.WaitsForMessage = uses&waitForMessage != 0 && !r.AsGRPC
	s.SingleRequest = uses&singleRequest != 0
	s.Selected, s.Described = r.selects(method, uses)
	s.Named = s.Selected && (r.IdempotentOnly || uses&(readOnly|methods) != 0)
	return s
}

// withPolicy applies the hedgingPolicy of a method, if it has one, as the least specific rule for
// the method. AsGRPC is for the rest of gRPC's definition: the budget does not pay, a hedge's final
// status and the headers of a stream decide, a pushback delays the next hedge of a failed call, and
// hedges that were turned away count against MaxHedges.
func (c *Config) withPolicy(method string) *Config {
	p := c.ServiceConfig.Policy(method)
	if p == nil {
		return c
	}
	with := *c
	with.AsGRPC = true
	with.Auto, with.Fixed, with.Delay, with.Latest = false, true, p.Delay, race.Longest
	with.MaxHedges = p.Attempts - 1
	with.Final, with.Failover = rpc.CodesBut(p.NonFatal), rpc.CodesOf(p.NonFatal...)
	return &with
}

// Unbudgeted reports whether the hedges of the method cost nothing.
func (s *Settings) Unbudgeted() bool {
	return s.AsGRPC && !s.OwnBudget
}

// selects reports whether the options select a method for hedging, by the patterns that match it.
// described is false if the method is not selected because its descriptor is missing.
func (c *Config) selects(fullMethod string, uses use) (selected, described bool) {
	switch {
	case uses&readOnly != 0:
		return true, true
	case len(c.Methods) > 0 && uses&methods == 0:
		return false, true
	case c.IdempotentOnly:
		level, described := idempotencyLevel(fullMethod)
		return level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, described
	}
	return len(c.Methods) > 0 || c.All || len(c.ReadOnly) == 0 && c.AsGRPC ||
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
func (c *Config) Throttling() *rpc.RetryThrottling {
	if c.ServiceConfig == nil {
		return nil
	}
	return c.ServiceConfig.Throttle
}
