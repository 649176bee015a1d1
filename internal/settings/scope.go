package settings

import (
	"slices"
	"strings"
)

// Scope is where options can be set, beside hedge.New.
type Scope struct {
	of      string
	options []string
}

const ofMethods = "WithTrigger WithMaxHedges WithBudgetPercent WithMinDelay WithWarmup WithNonFatalCodes WithClass WithCost " +
	"WithAnswer WithControl WithFollowUp WithDryRun WithOtherBackendOnly WithOff"

var (
	ForScheduler *Scope // all options
	ForTargets   = &Scope{"a target", strings.Fields(ofMethods + " WithServiceConfig WithResetLimit WithMethodOptions")}
	ForMethods   = &Scope{"a method", strings.Fields(ofMethods)}
)

// Allows reports whether an option can be set there.
func (s *Scope) Allows(option string) bool {
	return s == ForScheduler || slices.Contains(s.options, option)
}

func (s *Scope) String() string { return s.of }
