package settings

import (
	"context"
	"io"
	"time"

	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Config holds the values that the options of package hedge set. The options check them; nothing
// else does.
type Config struct {
	// Which methods may be hedged.

	Methods, ReadOnly   []string // patterns
	IdempotentOnly, All bool

	// How they are hedged.

	trigger.Config   // MaxHedges, BudgetPercent, MinDelay, WarmupCalls and Window; the rest is for learning to set
	Trigger          Trigger
	DryRun           bool
	WarmupDelay      time.Duration // 0: no hedge while learning
	Final            rpc.Codes
	Failover         rpc.Codes // 0: none
	OtherBackendOnly bool
	Class            func(ctx context.Context, method string, request any) string
	Cost             func(ctx context.Context, method string, request any) float64
	Acceptable       func(ctx context.Context, method string, reply any, err error) bool
	Control          float64            // the percentage of calls that are never hedged
	ServiceConfig    *rpc.ServiceConfig // nil: none
	HedgeLimit       *guard.HedgeLimit  // nil: none
	Guard            bool
	WaitForMessage   []string // patterns
	SingleRequest    []string // patterns

	// For some targets and methods only.

	Off                      bool
	HTTP                     bool // the target is one of package hedgehttp
	TargetRules, MethodRules []Rule
	Index                    *Index     // of MethodRules; in the configuration of a target, of the rules that it adds
	Selectors                []Selector // the patterns of Methods, ReadOnly and the rules for methods
	Applied                  []string   // the patterns of the rules that were applied, the most specific last
	OwnBudget                bool       // a rule for the method sets its budget

	Reporting

	// Memory.

	MaxMethods int
	Snapshots  []io.Reader // of other schedulers
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
			MaxHedges: 2, BudgetPercent: 10, MinDelay: time.Millisecond, WarmupCalls: 20, Window: 30 * time.Second,
		},
		Trigger:    Auto,
		Final:      rpc.Answers,
		Guard:      true,
		MaxMethods: 5_000,
	}
}

// Trigger chooses the delay after which calls are hedged.
type Trigger struct {
	Kind     TriggerKind
	Quantile float64       // of a PercentileTrigger
	Delay    time.Duration // of a FixedTrigger
	Latest   time.Duration // of an AutoTrigger: see hedge.NoLaterThan
}

// Auto is hedge.Auto without options.
var Auto = Trigger{Kind: AutoTrigger, Latest: race.Longest}

// TriggerKind selects the fields of a [Trigger] that are used.
type TriggerKind uint8

const (
	PercentileTrigger TriggerKind = iota
	FixedTrigger
	AutoTrigger
)

const fallback = 0.90 // the quantile of an AutoTrigger with too few calls for a choice

// learning returns the part of the configuration that package trigger needs.
func (c *Config) learning() *trigger.Config {
	l := c.Config
	l.Quantile, l.Auto, l.Latest = fallback, c.Trigger.Kind == AutoTrigger, race.Longest
	switch c.Trigger.Kind {
	case PercentileTrigger:
		l.Quantile = c.Trigger.Quantile
	case AutoTrigger:
		l.Latest = min(c.Trigger.Latest, race.Longest)
	}
	l.MinDelay = min(c.MinDelay, race.Longest)
	return &l
}

// Traces receive events: those of hedge.Trace, and the ones below.
type Traces []func(event any)

// Emit passes an event to all traces. Without a trace it costs nothing. The caller must hold no
// lock.
func Emit[E any](to Traces, event E) {
	for _, trace := range to {
		trace(event)
	}
}

// SilentBackend reports a late call at a backend that has been silent for a while.
type SilentBackend struct{ Target, Address string }

// InstalledTwice reports that a scheduler hedges a connection twice, once per scheduler.
type InstalledTwice struct{ Target string }

// Unhedgeable reports that most calls of a selected method cannot be hedged.
type Unhedgeable struct {
	Target, Method string
	Reason         stats.Reason
}

// NothingSelected reports that the options select no method of a target's first calls.
type NothingSelected struct {
	Target  string
	Why     string   // a clause with the cause and the remedy
	Methods []string // that were seen, sorted; a few of them
	More    int      // methods that are left out
}
