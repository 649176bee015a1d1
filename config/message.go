package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/proto/configpb"
)

// options returns the options of a message, and joins the errors of values that are not what their field takes. depth is the number of
// rules around it. Rules that stand deeper than the deepest allowed are not read, as they are an error anyway.
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
	add(m.GetAllMethods(), hedge.WithAllMethods)
	add(m.GetIdempotentOnly(), hedge.WithIdempotentOnly)
	add(m.Methods != nil, func() hedge.Option { return hedge.WithMethods(m.Methods...) })
	add(m.ReadOnlyMethods != nil, func() hedge.Option { return hedge.WithReadOnlyMethods(m.ReadOnlyMethods...) })
	add(m.WaitForMessage != nil, func() hedge.Option { return hedge.WithWaitForMessage(m.WaitForMessage...) })
	add(m.ServiceConfig != nil, func() hedge.Option { return hedge.WithServiceConfig(protojson.Format(m.ServiceConfig)) })
	add(m.MaxHedges != nil, func() hedge.Option { return hedge.WithMaxHedges(int(*m.MaxHedges)) })
	add(m.BudgetPercent != nil, func() hedge.Option { return hedge.WithBudgetPercent(*m.BudgetPercent) })
	add(m.MinDelay != nil, func() hedge.Option { return hedge.WithMinDelay(duration("minDelay", *m.MinDelay)) })
	add(m.Warmup != nil, func() hedge.Option {
		return hedge.WithWarmup(int(m.Warmup.GetCalls()), duration("warmup.delay", m.Warmup.GetDelay()))
	})
	flag(m.OtherBackendOnly, hedge.WithOtherBackendOnly)
	flag(m.Guard, hedge.WithGuard)
	flag(m.Off, hedge.WithOff)
	flag(m.DryRun, hedge.WithDryRun)
	add(m.Control != nil, func() hedge.Option { return hedge.WithControl(*m.Control) })
	add(m.ResetLimit != nil, func() hedge.Option {
		return hedge.WithResetLimit(int(m.ResetLimit.GetResets()), duration("resetLimit.per", m.ResetLimit.GetPer()))
	})
	add(m.Window != nil, func() hedge.Option { return hedge.WithWindow(duration("window", *m.Window)) })
	add(m.MaxMethods != nil, func() hedge.Option { return hedge.WithMaxMethods(int(*m.MaxMethods)) })
	add(m.NonFatalCodes != nil, func() hedge.Option {
		all := make([]codes.Code, len(m.NonFatalCodes.GetValues()))
		for i, v := range m.NonFatalCodes.GetValues() {
			if e := all[i].UnmarshalJSON([]byte(protojson.Format(v))); e != nil {
				err = errors.Join(err, fmt.Errorf(`nonFatalCodes: %v is not a status such as "UNAVAILABLE"`, protojson.Format(v)))
			}
		}
		return hedge.WithNonFatalCodes(all...)
	})
	switch t := m.GetTrigger().GetKind().(type) {
	case *configpb.Trigger_Auto:
		opts = append(opts, hedge.WithTrigger(hedge.Auto(hedge.TargetPercentile(t.Auto.GetTargetPercentile()))))
	case *configpb.Trigger_Percentile:
		opts = append(opts, hedge.WithTrigger(hedge.Percentile(t.Percentile)))
	case *configpb.Trigger_Fixed:
		opts = append(opts, hedge.WithTrigger(hedge.Fixed(duration("trigger.fixed", t.Fixed))))
	default:
		if m.Trigger != nil {
			err = errors.Join(err, errors.New(`trigger: it needs one of "auto": {}, "percentile": 0.9 and "fixed": "10ms"`))
		}
	}
	for _, rules := range []struct {
		field string
		of    map[string]*configpb.Options
		with  func(string, ...hedge.Option) hedge.Option
	}{{"methodOptions", m.MethodOptions, hedge.WithMethodOptions}, {"targetOptions", m.TargetOptions, hedge.WithTargetOptions}} {
		for _, pattern := range slices.Sorted(maps.Keys(rules.of)) {
			var of []hedge.Option
			if depth < 2 {
				var wrong error
				if of, wrong = options(rules.of[pattern], depth+1); wrong != nil {
					err = errors.Join(err, fmt.Errorf("%s[%q]: %w", rules.field, pattern, wrong))
				}
			}
			opts = append(opts, rules.with(pattern, of...))
		}
	}
	return opts, err
}

// message returns a message with the options that were given.
func message(c *settings.Config) *configpb.Options {
	m := &configpb.Options{}
	for option, set := range map[string]func(){
		"WithAllMethods":       func() { m.AllMethods = proto.Bool(true) },
		"WithIdempotentOnly":   func() { m.IdempotentOnly = proto.Bool(true) },
		"WithMethods":          func() { m.Methods = c.Methods },
		"WithReadOnlyMethods":  func() { m.ReadOnlyMethods = c.ReadOnly },
		"WithWaitForMessage":   func() { m.WaitForMessage = c.WaitForMessage },
		"WithServiceConfig":    func() { m.ServiceConfig = serviceConfig(c) },
		"WithTrigger":          func() { m.Trigger = trigger(c.Trigger) },
		"WithMaxHedges":        func() { m.MaxHedges = proto.Int32(int32(c.MaxHedges)) },
		"WithBudgetPercent":    func() { m.BudgetPercent = &c.BudgetPercent },
		"WithMinDelay":         func() { m.MinDelay = proto.String(c.MinDelay.String()) },
		"WithNonFatalCodes":    func() { m.NonFatalCodes = nonFatalCodes(c) },
		"WithOtherBackendOnly": func() { m.OtherBackendOnly = &c.OtherBackendOnly },
		"WithGuard":            func() { m.Guard = &c.Guard },
		"WithOff":              func() { m.Off = &c.Off },
		"WithDryRun":           func() { m.DryRun = &c.DryRun },
		"WithControl":          func() { m.Control = &c.Control },
		"WithWindow":           func() { m.Window = proto.String(c.Window.String()) },
		"WithMaxMethods":       func() { m.MaxMethods = proto.Int32(int32(min(c.MaxMethods, math.MaxInt32))) },
		"WithMethodOptions":    func() { m.MethodOptions = rules(c.MethodRules) },
		"WithTargetOptions":    func() { m.TargetOptions = rules(c.TargetRules) },
		"WithWarmup": func() {
			m.Warmup = &configpb.Warmup{Calls: proto.Int32(int32(c.WarmupCalls)), Delay: proto.String(c.WarmupDelay.String())}
		},
		"WithResetLimit": func() {
			m.ResetLimit = &configpb.ResetLimit{Resets: proto.Int32(int32(c.ResetLimit.N)), Per: proto.String(c.ResetLimit.Per.String())}
		},
	} {
		if slices.Contains(c.Set, option) {
			set()
		}
	}
	return m
}

func rules(of []settings.Rule) map[string]*configpb.Options {
	all := map[string]*configpb.Options{}
	for _, r := range of {
		set := settings.DefaultConfig()
		r.Apply(&set)
		all[r.Pattern] = message(&set)
	}
	return all
}

func serviceConfig(c *settings.Config) *structpb.Struct {
	s := &structpb.Struct{}
	protojson.Unmarshal([]byte(c.ServiceConfig.JSON), s) // it has been read once
	return s
}

func trigger(t settings.Trigger) *configpb.Trigger {
	switch t.Kind {
	case settings.PercentileTrigger:
		return &configpb.Trigger{Kind: &configpb.Trigger_Percentile{Percentile: t.Quantile}}
	case settings.FixedTrigger:
		return &configpb.Trigger{Kind: &configpb.Trigger_Fixed{Fixed: t.Delay.String()}}
	}
	return &configpb.Trigger{Kind: &configpb.Trigger_Auto{Auto: &configpb.Auto{TargetPercentile: &t.Quantile}}}
}

// codeNames are the names that gRPC's specification gives to its codes.
var codeNames = strings.Fields("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED " +
	"RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED")

func nonFatalCodes(c *settings.Config) *structpb.ListValue {
	l := &structpb.ListValue{}
	for code, name := range codeNames {
		if code := codes.Code(code); code != codes.OK && !c.Final.Has(code) {
			l.Values = append(l.Values, structpb.NewStringValue(name))
		}
	}
	return l
}
