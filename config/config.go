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
func options(m *configpb.Options, depth int) (opts []hedge.Option, err error) {
	duration := func(field, text string) time.Duration {
		d, e := time.ParseDuration(text)
		if e != nil {
			err = errors.Join(err, fmt.Errorf(`%s: %q is not a duration such as "1.5s" or "20ms"`, field, text))
		}
		return d
	}
	add := func(given bool, make func() hedge.Option) {
		if given {
			opts = append(opts, make())
		}
	}
	flag := func(value *bool, with func(bool) hedge.Option) {
		add(value != nil, func() hedge.Option { return with(*value) })
	}
	list := func(patterns []string, with func(...string) hedge.Option) {
		add(patterns != nil, func() hedge.Option { return with(patterns...) })
	}
	add(m.GetAllMethods(), hedge.WithAllMethods)
	add(m.GetIdempotentOnly(), hedge.WithIdempotentOnly)
	list(m.Methods, hedge.WithMethods)
	list(m.ReadOnlyMethods, hedge.WithReadOnlyMethods)
	list(m.SingleRequest, hedge.WithSingleRequest)
	list(m.WaitForMessage, hedge.WithWaitForMessage)
	add(m.ServiceConfig != nil, func() hedge.Option {
		return hedge.WithServiceConfig(protojson.MarshalOptions{}.Format(m.ServiceConfig))
	})
	add(m.MaxHedges != nil, func() hedge.Option { return hedge.WithMaxHedges(int(*m.MaxHedges)) })
	add(m.BudgetPercent != nil, func() hedge.Option { return hedge.WithBudgetPercent(*m.BudgetPercent) })
	add(m.MinDelay != nil, func() hedge.Option { return hedge.WithMinDelay(duration("minDelay", *m.MinDelay)) })
	add(m.Warmup != nil, func() hedge.Option {
		calls, delay := int32(20), "0s" // the defaults
		if m.Warmup.Calls != nil {
			calls = *m.Warmup.Calls
		}
		if m.Warmup.Delay != nil {
			delay = *m.Warmup.Delay
		}
		return hedge.WithWarmup(int(calls), duration("warmup.delay", delay))
	})
	flag(m.OtherBackendOnly, hedge.WithOtherBackendOnly)
	flag(m.Guard, hedge.WithGuard)
	flag(m.Off, hedge.WithOff)
	flag(m.DryRun, hedge.WithDryRun)
	add(m.Control != nil, func() hedge.Option { return hedge.WithControl(*m.Control) })
	add(m.HedgeLimit != nil, func() hedge.Option {
		return hedge.WithHedgeLimit(int(m.HedgeLimit.GetHedges()), duration("hedgeLimit.per", m.HedgeLimit.GetPer()))
	})
	add(m.Window != nil, func() hedge.Option { return hedge.WithWindow(duration("window", *m.Window)) })
	add(m.MaxMethods != nil, func() hedge.Option { return hedge.WithMaxMethods(int(*m.MaxMethods)) })
	statuses := func(field string, list *structpb.ListValue, with func(...codes.Code) hedge.Option) {
		all := make([]codes.Code, len(list.GetValues()))
		for i, v := range list.GetValues() {
			text := protojson.Format(v)
			if e := all[i].UnmarshalJSON([]byte(text)); e != nil {
				err = errors.Join(err, fmt.Errorf(`%s: %v is not a status such as "UNAVAILABLE"`, field, text))
			}
		}
		add(list != nil, func() hedge.Option { return with(all...) })
	}
	statuses("nonFatalCodes", m.NonFatalCodes, hedge.WithNonFatalCodes)
	statuses("failover", m.Failover, hedge.WithFailover)
	switch t := m.GetTrigger().GetKind().(type) {
	case *configpb.Trigger_Auto:
		var auto []hedge.AutoOption
		if t.Auto.NoLaterThan != nil {
			auto = append(auto, hedge.NoLaterThan(duration("trigger.auto.noLaterThan", *t.Auto.NoLaterThan)))
		}
		opts = append(opts, hedge.WithTrigger(hedge.Auto(auto...)))
	case *configpb.Trigger_Percentile:
		opts = append(opts, hedge.WithTrigger(hedge.Percentile(t.Percentile)))
	case *configpb.Trigger_Fixed:
		opts = append(opts, hedge.WithTrigger(hedge.Fixed(duration("trigger.fixed", t.Fixed))))
	default:
		if m.Trigger != nil {
			err = errors.Join(err, errors.New(
				`trigger: must have one of "auto": {}, "percentile": 0.9 and "fixed": "10ms"`))
		}
	}
	rules := func(field string, all map[string]*configpb.Options, with func(string, ...hedge.Option) hedge.Option) {
		for _, pattern := range slices.Sorted(maps.Keys(all)) {
			var of []hedge.Option
			if depth < 2 {
				var wrong error
				if of, wrong = options(all[pattern], depth+1); wrong != nil {
					err = errors.Join(err, fmt.Errorf("%s[%q]: %w", field, pattern, wrong))
				}
			}
			opts = append(opts, with(pattern, of...))
		}
	}
	rules("methodOptions", m.MethodOptions, hedge.WithMethodOptions)
	rules("targetOptions", m.TargetOptions, hedge.WithTargetOptions)
	return opts, err
}
