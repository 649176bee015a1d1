// Package config makes the options of package hedge from JSON. Import it as hedgeconfig alongside
// another package config:
//
//	import hedgeconfig "github.com/grpchedge/hedge/config"
//
// The configuration is one JSON object. Each field is named after an option, without its With:
// "maxHedges": 2 is hedge.WithMaxHedges(2). Options that take a Go function have no field.
// docs/configuration.md of this module lists all fields. proto/configpb/config.proto is the schema,
// read as protobuf's JSON.
package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/proto/configpb"
)

// Parse returns the options of a JSON object, for [hedge.New] and [hedge.Scheduler.Update]. Its
// errors give line and column for malformed JSON, an unknown or repeated field, and a value of the
// wrong type; and the option for a value out of range and a field that cannot be set there. null is
// the same as no field. Parse may be called concurrently.
//
// New and Update check the options together: for example, one of them must select methods.
func Parse(data []byte) ([]hedge.Option, error) {
	m := &configpb.Options{}
	if err := protojson.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("hedge: config: %w", err)
	}
	opts, err := options(m, 0)
	if err == nil {
		_, err = hedge.New(append(opts, hedge.WithAllMethods())...) // which finds values out of range
	}
	if err != nil {
		return nil, fmt.Errorf("hedge: config: %s", strings.ReplaceAll(err.Error(), "hedge: ", ""))
	}
	return opts, nil
}

// options returns the options of a message, and joins the errors of malformed values. depth is the
// number of enclosing rules. Rules nested deeper than two are an error anyway, and are not read.
func options(m *configpb.Options, depth int) ([]hedge.Option, error) {
	var p parsed
	p.add(m.GetAllMethods(), hedge.WithAllMethods)
	p.add(m.GetIdempotentOnly(), hedge.WithIdempotentOnly)
	p.patterns(m.Methods, hedge.WithMethods)
	p.patterns(m.ReadOnlyMethods, hedge.WithReadOnlyMethods)
	p.patterns(m.SingleRequest, hedge.WithSingleRequest)
	p.patterns(m.WaitForMessage, hedge.WithWaitForMessage)
	p.add(m.ServiceConfig != nil, func() hedge.Option {
		return hedge.WithServiceConfig(protojson.MarshalOptions{}.Format(m.ServiceConfig))
	})
	p.add(m.MaxHedges != nil, func() hedge.Option { return hedge.WithMaxHedges(int(*m.MaxHedges)) })
	p.add(m.BudgetPercent != nil, func() hedge.Option { return hedge.WithBudgetPercent(*m.BudgetPercent) })
	p.add(m.MinDelay != nil, func() hedge.Option { return hedge.WithMinDelay(p.duration("minDelay", *m.MinDelay)) })
	p.add(m.Warmup != nil, func() hedge.Option {
		calls, delay := int32(20), "0s" // the defaults
		if m.Warmup.Calls != nil {
			calls = *m.Warmup.Calls
		}
		if m.Warmup.Delay != nil {
			delay = *m.Warmup.Delay
		}
		return hedge.WithWarmup(int(calls), p.duration("warmup.delay", delay))
	})
	p.flag(m.OtherBackendOnly, hedge.WithOtherBackendOnly)
	p.flag(m.Guard, hedge.WithGuard)
	p.flag(m.Off, hedge.WithOff)
	p.flag(m.DryRun, hedge.WithDryRun)
	p.add(m.Control != nil, func() hedge.Option { return hedge.WithControl(*m.Control) })
	p.add(m.HedgeLimit != nil, func() hedge.Option {
		return hedge.WithHedgeLimit(int(m.HedgeLimit.GetHedges()), p.duration("hedgeLimit.per", m.HedgeLimit.GetPer()))
	})
	p.add(m.Window != nil, func() hedge.Option { return hedge.WithWindow(p.duration("window", *m.Window)) })
	p.add(m.MaxMethods != nil, func() hedge.Option { return hedge.WithMaxMethods(int(*m.MaxMethods)) })
	p.statuses("nonFatalCodes", m.NonFatalCodes, hedge.WithNonFatalCodes)
	p.statuses("failover", m.Failover, hedge.WithFailover)
	p.trigger(m.Trigger)
	p.rules("methodOptions", m.MethodOptions, depth, hedge.WithMethodOptions)
	p.rules("targetOptions", m.TargetOptions, depth, hedge.WithTargetOptions)
	return p.opts, p.err
}

// parsed is the options that were read, and their errors.
type parsed struct {
	opts []hedge.Option
	err  error
}

func (p *parsed) wrong(format string, args ...any) {
	p.err = errors.Join(p.err, fmt.Errorf(format, args...))
}

func (p *parsed) duration(field, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		p.wrong(`%s: %q is not a duration such as "1.5s" or "20ms"`, field, text)
	}
	return d
}

func (p *parsed) add(given bool, make func() hedge.Option) {
	if given {
		p.opts = append(p.opts, make())
	}
}

func (p *parsed) flag(value *bool, with func(bool) hedge.Option) {
	p.add(value != nil, func() hedge.Option { return with(*value) })
}

func (p *parsed) patterns(list []string, with func(...string) hedge.Option) {
	p.add(list != nil, func() hedge.Option { return with(list...) })
}

func (p *parsed) statuses(field string, list *structpb.ListValue, with func(...codes.Code) hedge.Option) {
	all := make([]codes.Code, len(list.GetValues()))
	for i, v := range list.GetValues() {
		text := protojson.Format(v)
		if err := all[i].UnmarshalJSON([]byte(text)); err != nil {
			p.wrong(`%s: %v is not a status such as "UNAVAILABLE"`, field, text)
		}
	}
	p.add(list != nil, func() hedge.Option { return with(all...) })
}

func (p *parsed) trigger(m *configpb.Trigger) {
	var t hedge.Trigger
	switch kind := m.GetKind().(type) {
	case *configpb.Trigger_Auto:
		var auto []hedge.AutoOption
		if kind.Auto.NoLaterThan != nil {
			auto = append(auto, hedge.NoLaterThan(p.duration("trigger.auto.noLaterThan", *kind.Auto.NoLaterThan)))
		}
		t = hedge.Auto(auto...)
	case *configpb.Trigger_Percentile:
		t = hedge.Percentile(kind.Percentile)
	case *configpb.Trigger_Fixed:
		t = hedge.Fixed(p.duration("trigger.fixed", kind.Fixed))
	default:
		if m != nil {
			p.wrong(`trigger: must have one of "auto": {}, "percentile": 0.9 and "fixed": "10ms"`)
		}
		return
	}
	p.opts = append(p.opts, hedge.WithTrigger(t))
}

func (p *parsed) rules(
	field string, all map[string]*configpb.Options, depth int, with func(string, ...hedge.Option) hedge.Option,
) {
	for _, pattern := range slices.Sorted(maps.Keys(all)) {
		var of []hedge.Option
		if depth < 2 {
			var err error
			if of, err = options(all[pattern], depth+1); err != nil {
				p.wrong("%s[%q]: %w", field, pattern, err)
			}
		}
		p.opts = append(p.opts, with(pattern, of...))
	}
}
