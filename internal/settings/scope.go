package settings

// Scope is where an option can be set, beside hedge.New.
type Scope uint8

const (
	ForScheduler Scope = 0 // hedge.New alone
	ForTargets   Scope = 1
	ForMethods   Scope = 2
)

// Scopes has the options that can be set for targets or methods. All others are for the scheduler alone.
var Scopes = map[string]Scope{
	"WithTrigger":          ForTargets | ForMethods,
	"WithMaxHedges":        ForTargets | ForMethods,
	"WithBudgetPercent":    ForTargets | ForMethods,
	"WithMinDelay":         ForTargets | ForMethods,
	"WithWarmup":           ForTargets | ForMethods,
	"WithNonFatalCodes":    ForTargets | ForMethods,
	"WithClass":            ForTargets | ForMethods,
	"WithCost":             ForTargets | ForMethods,
	"WithAnswer":           ForTargets | ForMethods,
	"WithControl":          ForTargets | ForMethods,
	"WithFollowUp":         ForTargets | ForMethods,
	"WithDryRun":           ForTargets | ForMethods,
	"WithOtherBackendOnly": ForTargets | ForMethods,
	"WithOff":              ForTargets | ForMethods,
	"WithServiceConfig":    ForTargets,
	"WithResetLimit":       ForTargets,
	"WithMethodOptions":    ForTargets,
}

// Allows reports whether an option can be set there.
func (s Scope) Allows(option string) bool { return s == ForScheduler || Scopes[option]&s != 0 }

func (s Scope) String() string {
	if s == ForMethods {
		return "a method"
	}
	return "a target"
}
