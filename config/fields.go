// Code generated from proto/configpb/config.proto by "make generate". DO NOT EDIT.

package config

import "github.com/grpchedge/hedge"

// fields has the option of each field.
var fields = map[string]any{
	"all_methods":       hedge.WithAllMethods,
	"idempotent_only":   hedge.WithIdempotentOnly,
	"methods":           hedge.WithMethods,
	"read_only_methods": hedge.WithReadOnlyMethods,
	"service_config":    hedge.WithServiceConfig,
	"trigger":           hedge.WithTrigger,
	"max_hedges":        hedge.WithMaxHedges,
	"budget_percent":    hedge.WithBudgetPercent,
	"min_delay":         hedge.WithMinDelay,
	"warmup":            hedge.WithWarmup,
	"non_fatal_codes":   hedge.WithNonFatalCodes,
	"failover":          hedge.WithFailover,
	"guard":             hedge.WithGuard,
	"off":               hedge.WithOff,
	"dry_run":           hedge.WithDryRun,
	"control":           hedge.WithControl,
	"hedge_limit":       hedge.WithHedgeLimit,
	"window":            hedge.WithWindow,
	"max_methods":       hedge.WithMaxMethods,
	"wait_for_message":  hedge.WithWaitForMessage,
	"single_request":    hedge.WithSingleRequest,
	"method_options":    hedge.WithMethodOptions,
	"target_options":    hedge.WithTargetOptions,
}
