package settings_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/proto/configpb"
	"github.com/grpchedge/hedge/stats"
)

// steered is an option of hedge.New, with two of its values. b is nil if it has only one. The row
// of the option in docs/options.md has the scopes, and the call option that overrides it.
type steered struct {
	name           string
	a, b           hedge.Option
	target, method bool
	call           string
}

func constant(name string) func(context.Context, string, any) string {
	return func(context.Context, string, any) string { return name }
}

func accepting(all bool) func(context.Context, string, any, error) bool {
	return func(context.Context, string, any, error) bool { return all }
}

// values has two values of each option that has no field in JSON, or a field of its own form.
var values = map[string][2]hedge.Option{
	"WithTrigger":       {hedge.WithTrigger(hedge.Percentile(.5)), hedge.WithTrigger(hedge.Fixed(1))},
	"WithWarmup":        {hedge.WithWarmup(1, 2), hedge.WithWarmup(3, 4)},
	"WithServiceConfig": {hedgetest.Throttle(1, 1), hedgetest.Throttle(2, 1)},
	"WithHedgeLimit":    {hedge.WithHedgeLimit(1, time.Second), hedge.WithHedgeLimit(2, time.Second)},
	"WithMethodOptions": {hedge.WithMethodOptions("/s/M", hedge.WithOff(true))},
	"WithTargetOptions": {hedge.WithTargetOptions("t", hedge.WithOff(true))},
	"WithClass":         {hedge.WithClass(constant("a")), hedge.WithClass(constant("b"))},
	"WithAcceptable":    {hedge.WithAcceptable(accepting(false)), hedge.WithAcceptable(accepting(true))},
	"WithTrace":         {hedge.WithTrace(&hedge.Trace{})},
	"WithLogger":        {hedge.WithLogger(slog.Default())},
	"WithTargetName":    {hedge.WithTargetName(strings.ToLower)},
}

// valuesOf returns two values of an option, the first not the default; nil for an option that has
// neither a field of a common type nor a row in values.
func valuesOf(t *testing.T, name string) (a, b hedge.Option) {
	t.Helper()
	if two, ok := values[name]; ok {
		return two[0], two[1]
	}
	field := fieldOf(name)
	if field == nil {
		return nil, nil
	}
	var texts []string
	switch kind := field.Kind(); {
	case field.IsList():
		texts = []string{`["/s/*"]`}
	case kind == protoreflect.BoolKind && field.JSONName() == "guard":
		texts = []string{"false", "true"}
	case kind == protoreflect.BoolKind:
		texts = []string{"true", "false"}
	case kind == protoreflect.StringKind:
		texts = []string{`"1h"`, `"2h"`}
	case kind == protoreflect.MessageKind && field.Message().Name() == "ListValue":
		texts = []string{`["INTERNAL"]`, `[]`}
	case kind != protoreflect.MessageKind:
		texts = []string{"1", "3"}
	}
	var two [2]hedge.Option
	for i, text := range texts {
		opts, err := config.Parse(fmt.Appendf(nil, `{%q: %s}`, field.JSONName(), text))
		if err != nil {
			t.Fatalf("%s: %s in JSON: %v", name, text, err)
		}
		if len(opts) > 0 {
			two[i] = opts[0]
		}
	}
	return two[0], two[1]
}

// rowOf returns the last cell of the row of an option in docs/options.md, its scopes and its call
// option; nil without a row.
func rowOf(t *testing.T, name string) (also []string) {
	t.Helper()
	cell := regexp.MustCompile("(?m)^\\| `" + name + `\(.*\| (.*) \|$`).FindSubmatch(read(t, "../../docs/options.md"))
	if cell == nil {
		return nil
	}
	return strings.Split(string(cell[1]), ", ")
}

// everyOption returns the options of package hedge that TestDocs_EveryOptionIsInTheTable does not
// report.
func everyOption(t *testing.T) (all []steered) {
	t.Helper()
	for _, name := range exportedOptions(t) {
		a, b := valuesOf(t, name)
		if also := rowOf(t, name); a != nil && also != nil {
			o := steered{name: name, a: a, b: b, target: slices.Contains(also, "targets"),
				method: slices.Contains(also, "methods")}
			if last := also[len(also)-1]; last[0] == '`' {
				o.call = strings.Trim(last, "`")
			}
			all = append(all, o)
		}
	}
	return all
}

// shown returns the comparable part of a configuration for a method.
func shown(c settings.Config) any {
	class, accepts := "", true
	if c.Class != nil {
		class = c.Class(nil, "", nil)
	}
	if c.Acceptable != nil {
		accepts = c.Acceptable(nil, "", nil, nil)
	}
	named := c.TargetName != nil
	c.Class, c.Acceptable, c.TargetName, c.Traces = nil, nil, nil, nil
	c.TargetRules, c.MethodRules, c.Index, c.Applied, c.Options, c.Compared, c.OwnBudget = nil, nil, nil, nil, nil, "", false
	return []any{c, class, accepts, named}
}

// scope is where an option is set: for all, for a target, for a method. The later one wins.
type scope struct {
	name string
	at   func(hedge.Option) hedge.Option
	may  func(steered) bool
}

var scopes = []scope{
	{"scheduler", func(o hedge.Option) hedge.Option { return o }, func(steered) bool { return true }},
	{"target", func(o hedge.Option) hedge.Option { return hedge.WithTargetOptions("t", o) },
		func(s steered) bool { return s.target }},
	{"method", func(o hedge.Option) hedge.Option { return hedge.WithMethodOptions("/s/M", o) },
		func(s steered) bool { return s.method }},
}

// Every option, at every place and at every pair of scopes, in both orders: it is an error, or the
// value of the later place is in force.
func TestRule20_EveryOptionEverywhere(t *testing.T) {
	made := func(t *testing.T, o steered, opts ...hedge.Option) any {
		t.Helper()
		s, err := hedge.New(append([]hedge.Option{hedge.WithServiceConfig("{}")}, opts...)...)
		if err != nil {
			t.Fatalf("New returns an error for %s: %v", o.name, err)
		}
		return shown(configFor(s, "t", "/s/M"))
	}
	for _, o := range everyOption(t) {
		alone := made(t, o, o.a)
		if reflect.DeepEqual(alone, made(t, o)) {
			t.Errorf("%s has no effect on the settings", o.name)
		}
		for i, wide := range scopes {
			if !wide.may(o) {
				_, err := hedge.New(hedge.WithAllMethods(), wide.at(o.a))
				if want := o.name + " cannot be set for a "; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s for a %s: error %v, want %q, by its row in docs/options.md", o.name, wide.name, err, want)
				}
				continue
			}
			if got := made(t, o, wide.at(o.a)); !reflect.DeepEqual(got, alone) {
				t.Errorf("%s for the %s: %v, want %v", o.name, wide.name, got, alone)
			}
			for _, narrow := range scopes[i+1:] {
				if o.b == nil || !narrow.may(o) {
					continue
				}
				want := made(t, o, o.b)
				for _, opts := range [][]hedge.Option{{wide.at(o.a), narrow.at(o.b)}, {narrow.at(o.b), wide.at(o.a)}} {
					if got := made(t, o, opts...); !reflect.DeepEqual(got, want) {
						t.Errorf("%s for the %s and the %s: %v, want %v", o.name, wide.name, narrow.name, got, want)
					}
				}
			}
		}
	}
}

// fieldOf returns the field of an option in the schema of package config; nil if there is none.
func fieldOf(option string) protoreflect.FieldDescriptor {
	name := strings.ToLower(option[4:5]) + option[5:]
	return new(configpb.Options).ProtoReflect().Descriptor().Fields().ByJSONName(name)
}

// TestDocs_EveryOptionIsInTheTable names the places that an option lacks. The other tests of this
// file compare the row in docs/options.md with the code.
func TestDocs_EveryOptionIsInTheTable(t *testing.T) {
	without := regexp.MustCompile(`(?s)has no field in JSON: (.*?)\.`).Find(read(t, "../../docs/options.md"))
	for _, name := range exportedOptions(t) {
		listed, field := bytes.Contains(without, []byte("`"+name+"`")), fieldOf(name)
		if listed == (field != nil) {
			t.Errorf("%s must have either a field in proto/configpb/config.proto, with what make generate writes, "+
				"or a mention in docs/options.md as an option without one", name)
		}
		if rowOf(t, name) == nil {
			t.Errorf("%s must have a row in docs/options.md", name)
		}
		if a, _ := valuesOf(t, name); a == nil && (listed || field != nil) {
			t.Errorf("%s must have two values in the table values of this test", name)
		}
	}
}

// exportedOptions returns the names of the functions of package hedge that return an Option.
func exportedOptions(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, f := range regexp.MustCompile(`(?m)^func (With\w+)\(.*\) Option \{$`).FindAllSubmatch(read(t, file), -1) {
			names = append(names, string(f[1]))
		}
	}
	if len(names) == 0 {
		t.Fatal("there are no options")
	}
	return names
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// configFor is the configuration in force for a method of a target.
func configFor(s *hedge.Scheduler, target, method string) settings.Config {
	c := (*registry.Registry)(s).Config()
	return *c.ForMethod(c.ForTarget(target), method)
}

// TestOptions_TheCallersSlicesAreItsOwn refills the slices of options before New, and before the
// methods are first called.
func TestOptions_TheCallersSlicesAreItsOwn(t *testing.T) {
	methods, nonFatal := []string{"/a/*"}, []codes.Code{codes.Unknown}
	ofMethod, ofTarget := []hedge.Option{hedge.WithMaxHedges(1)}, []hedge.Option{hedge.WithMinDelay(time.Second)}
	options := []hedge.Option{hedge.WithMethods(methods...), hedge.WithNonFatalCodes(nonFatal...),
		hedge.WithMethodOptions("/a/b", ofMethod...), hedge.WithTargetOptions("target", ofTarget...)}
	methods[0], nonFatal[0] = "/other/*", codes.Internal
	ofMethod[0], ofTarget[0] = hedge.WithMaxHedges(3), hedge.WithMinDelay(time.Minute)
	s := hedgetest.New(t, options...)
	hedgetest.Call(t, s, "target", "/a/b", 0)
	got := (*registry.Registry)(s).Method("target", "/a/b", time.Now()).Settings()
	if !got.Selected || got.Final != rpc.CodesBut([]codes.Code{codes.Unknown}) || got.MaxHedges != 1 ||
		got.MinDelay != time.Second {
		t.Errorf("the configuration is %+v, want the options of the patterns that match", got)
	}
}

// TestTargetPatterns checks which targets a pattern matches, and that rules for other targets cost
// a new method next to nothing: they are compared with Registry.mu held.
func TestTargetPatterns(t *testing.T) {
	for _, tc := range []struct {
		pattern, matching, other string // names, separated by spaces
	}{
		{"*", "a dns:///a:1 \xff a\nb", ""},
		{"**", "a", ""},
		{"a*", "a ab a/b a\xff", "ba A"},
		{"*a*a", "aa baba", "a ab"},
		{"a*b*b", "abb aXbXb", "ab bab abbX"},
		{"a.b", "a.b", "aXb a.b. xa.b"},
		{`(a|b)+[c]?\*$`, `(a|b)+[c]?\$ (a|b)+[c]?\x$`, "a ac"},
		{"a\ufffdb", "a\ufffdb", "a\xffb"},
	} {
		c := settings.DefaultConfig()
		c.TargetRules = []settings.Rule{{Pattern: tc.pattern, Apply: func(c *settings.Config) { c.Off = true }}}
		for _, name := range strings.Split(tc.matching, " ") {
			if !c.ForTarget(name).Off {
				t.Errorf("%q does not match %q", tc.pattern, name)
			}
		}
		for _, name := range strings.Fields(tc.other) {
			if c.ForTarget(name).Off {
				t.Errorf("%q matches %q", tc.pattern, name)
			}
		}
	}
	c := settings.DefaultConfig()
	c.TargetRules = slices.Repeat([]settings.Rule{{Pattern: "dns:///*.b*"}}, 100)
	if n := testing.AllocsPerRun(10, func() { c.ForTarget("dns:///other") }); n > 10 {
		t.Errorf("100 rules for other targets: %v allocations", n)
	}
}

const ms = time.Millisecond

// perCall is a way to give call options to one call. says is their effect: Off, After three
// milliseconds, or none.
type perCall struct {
	name    string
	context []grpc.CallOption
	options []grpc.CallOption
	says    string
}

var (
	off, after, late = hedge.Off(), hedge.After(3 * ms), hedge.After(time.Hour)

	perCalls = []perCall{
		{name: "nothing"},
		{name: "Off", options: []grpc.CallOption{off}, says: "Off"},
		{name: "After", options: []grpc.CallOption{after}, says: "After"},
		{name: "Off in the context", context: []grpc.CallOption{off}, says: "Off"},
		{name: "After in the context", context: []grpc.CallOption{after}, says: "After"},
		{name: "Off, After in the context", context: []grpc.CallOption{after}, options: []grpc.CallOption{off},
			says: "Off"},
		{name: "After, Off in the context", context: []grpc.CallOption{off}, options: []grpc.CallOption{after},
			says: "After"},
		{name: "After, a later one in the context", context: []grpc.CallOption{late}, options: []grpc.CallOption{after},
			says: "After"},
		{name: "the last one of two", options: []grpc.CallOption{off, after}, says: "After"},
		{name: "the last one of two in the context", context: []grpc.CallOption{after, off}, says: "Off"},
	}
)

// begin begins a call, and returns its delay and the reason why it has none.
func (p perCall) begin(s *hedge.Scheduler, method string) (delay time.Duration, reason stats.Reason) {
	ctx := context.Background()
	if p.context != nil {
		ctx = hedge.NewContext(ctx, p.context...)
	}
	var o stats.Outcome
	opts := append([]grpc.CallOption{hedge.Report(&o)}, p.options...)
	c := call.Begin((*registry.Registry)(s), ctx, "t", method, nil, opts...)
	c.Inspect(nil)
	var plan race.Plan
	if c.Hedged {
		plan = c.Plan()
	}
	return plan.Delay, o.Reason
}

// stops has the options that leave calls unhedged, and the reason. After does not override them.
var stops = map[string]stats.Reason{
	"WithOff":           stats.SwitchedOff,
	"WithMethodOptions": stats.SwitchedOff, // tested with WithOff
	"WithTargetOptions": stats.SwitchedOff,
	"WithDryRun":        stats.DryRun,
}

// Every option in every scope, with every way to give call options: Off overrides them all, and
// After overrides the options that choose methods and delays.
func TestRule20_EveryOptionAndACall(t *testing.T) {
	for _, o := range everyOption(t) {
		selects := o.call == "After" && !o.target
		method := "/s/M"
		base := []hedge.Option{hedge.WithServiceConfig("{}")}
		if selects {
			method = "/x/NotSelected"
		} else {
			base = append(base, hedge.WithAllMethods())
		}
		for _, at := range scopes {
			for i, value := range []hedge.Option{o.a, o.b} {
				if value == nil || !at.may(o) {
					continue
				}
				s := hedgetest.New(t, append(base, at.at(value))...)
				for _, p := range perCalls {
					delay, reason := p.begin(s, method)
					where := fmt.Sprintf("%s for the %s, %s", o.name, at.name, p.name)
					stopped, stop := stops[o.name]
					stop = stop && i == 0 // with its second value, a switch is off
					switch {
					case p.says == "Off" && (delay != 0 || reason != stats.SwitchedOff):
						t.Errorf("%s: delay %v, reason %q", where, delay, reason)
					case p.says == "" && selects && o.name != "WithAllMethods" && reason != stats.NotSelected &&
						reason != stats.NoDescriptor:
						t.Errorf("%s: reason %q", where, reason)
					case p.says != "After", reason == stats.InControlGroup && o.name == "WithControl":
					case stop && (delay != 0 || reason != stopped):
						t.Errorf("%s: delay %v, reason %q, want %q", where, delay, reason, stopped)
					case !stop && (delay != 3*ms || reason != stats.NoReason):
						t.Errorf("%s: delay %v, reason %q, want 3ms", where, delay, reason)
					}
				}
			}
		}
	}
}
