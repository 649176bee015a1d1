package settings_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// steered is an option, two of its values, what shows which is in force, and whether it can be set
// for a target and a method, and by which call option for a call.
type steered struct {
	name           string
	a, b           hedge.Option
	shows          func(settings.Config) any
	target, method bool
	call           string
}

func constant(name string) func(context.Context, string, any) string {
	return func(context.Context, string, any) string { return name }
}

// nothingLearned is a snapshot without methods, which can be read again.
func nothingLearned() io.Reader {
	var b bytes.Buffer
	if err := new(hedge.Scheduler).WriteSnapshot(&b); err != nil {
		panic(err)
	}
	return again{bytes.NewReader(b.Bytes())}
}

// again is a reader that restarts after its end.
type again struct{ *bytes.Reader }

func (a again) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err == io.EOF {
		_, _ = a.Seek(0, io.SeekStart)
	}
	return n, err
}

func costing(n float64) func(context.Context, string, any) float64 {
	return func(context.Context, string, any) float64 { return n }
}

func accepting(all bool) func(context.Context, string, any, error) bool {
	return func(context.Context, string, any, error) bool { return all }
}

var everyOption = []steered{
	{"WithTrigger", hedge.WithTrigger(hedge.Percentile(.5)), hedge.WithTrigger(hedge.Fixed(1)),
		func(c settings.Config) any { return c.Trigger }, true, true, "After"},
	{"WithMaxHedges", hedge.WithMaxHedges(1), hedge.WithMaxHedges(3),
		func(c settings.Config) any { return c.MaxHedges }, true, true, ""},
	{"WithBudgetPercent", hedge.WithBudgetPercent(1), hedge.WithBudgetPercent(3),
		func(c settings.Config) any { return c.BudgetPercent }, true, true, ""},
	{"WithMinDelay", hedge.WithMinDelay(1), hedge.WithMinDelay(2),
		func(c settings.Config) any { return c.MinDelay }, true, true, "After"},
	{"WithWarmup", hedge.WithWarmup(1, 2), hedge.WithWarmup(3, 4),
		func(c settings.Config) any { return fmt.Sprint(c.WarmupCalls, c.WarmupDelay) }, true, true, "After"},
	{"WithNonFatalCodes", hedge.WithNonFatalCodes(codes.Internal), hedge.WithNonFatalCodes(),
		func(c settings.Config) any { return c.Final }, true, true, ""},
	{"WithFailover", hedge.WithFailover(), hedge.WithFailover(codes.Internal),
		func(c settings.Config) any { return c.Failover }, true, true, ""},
	{"WithClass", hedge.WithClass(constant("a")), hedge.WithClass(constant("b")), func(c settings.Config) any {
		if c.Class == nil {
			return ""
		}
		return c.Class(nil, "", nil)
	}, true, true, ""},
	{"WithCost", hedge.WithCost(costing(2)), hedge.WithCost(costing(3)), func(c settings.Config) any {
		if c.Cost == nil {
			return 1.
		}
		return c.Cost(nil, "", nil)
	}, true, true, ""},
	{"WithAcceptable", hedge.WithAcceptable(accepting(true)), hedge.WithAcceptable(accepting(false)),
		func(c settings.Config) any {
			if c.Acceptable == nil {
				return ""
			}
			return c.Acceptable(nil, "", nil, nil)
		}, true, true, ""},
	{"WithControl", hedge.WithControl(1), hedge.WithControl(3), func(c settings.Config) any { return c.Control },
		true, true, ""},
	{"WithDryRun", hedge.WithDryRun(true), hedge.WithDryRun(false),
		func(c settings.Config) any { return c.DryRun }, true, true, ""},
	{"WithOtherBackendOnly", hedge.WithOtherBackendOnly(true), hedge.WithOtherBackendOnly(false),
		func(c settings.Config) any { return c.OtherBackendOnly }, true, true, ""},
	{"WithOff", hedge.WithOff(true), hedge.WithOff(false), func(c settings.Config) any { return c.Off }, true,
		true, "Off"},
	{"WithServiceConfig", hedgetest.Throttle(1, 1), hedgetest.Throttle(2, 1),
		func(c settings.Config) any { return cmp.Diff(c.Throttling(), (*rpc.Throttle)(nil)) }, true, false, ""},
	{"WithHedgeLimit", hedge.WithHedgeLimit(1, time.Second), hedge.WithHedgeLimit(2, time.Second),
		func(c settings.Config) any { return fmt.Sprintf("%+v", c.HedgeLimit) }, true, false, ""},
	{"WithMethodOptions", hedge.WithMethodOptions("/s/M", hedge.WithOff(true)), nil,
		func(c settings.Config) any { return c.Off }, true, false, ""},

	{"WithTargetOptions", hedge.WithTargetOptions("t", hedge.WithOff(true)), nil,
		func(c settings.Config) any { return c.Off }, false, false, ""},
	{"WithAllMethods", hedge.WithAllMethods(), nil, func(c settings.Config) any { return c.All }, false, false, "After"},
	{"WithMethods", hedge.WithMethods("/s/*"), nil, func(c settings.Config) any { return len(c.Methods) }, false,
		false, "After"},
	{"WithReadOnlyMethods", hedge.WithReadOnlyMethods("/s/*"), nil,
		func(c settings.Config) any { return len(c.ReadOnly) }, false, false, "After"},
	{"WithWaitForMessage", hedge.WithWaitForMessage("/s/*"), nil,
		func(c settings.Config) any { return len(c.WaitForMessage) }, false, false, ""},
	{"WithSingleRequest", hedge.WithSingleRequest("/s/*"), nil,
		func(c settings.Config) any { return len(c.SingleRequest) }, false, false, ""},
	{"WithIdempotentOnly", hedge.WithIdempotentOnly(), nil,
		func(c settings.Config) any { return c.IdempotentOnly }, false, false, "After"},
	{"WithWindow", hedge.WithWindow(time.Hour), nil, func(c settings.Config) any { return c.Window }, false, false, ""},
	{"WithMaxMethods", hedge.WithMaxMethods(1000), nil, func(c settings.Config) any { return c.MaxMethods },
		false, false, ""},
	{"WithGuard", hedge.WithGuard(false), hedge.WithGuard(true), func(c settings.Config) any { return c.Guard },
		true, true, ""},
	{"WithTrace", hedge.WithTrace(&hedge.Trace{}), nil, func(c settings.Config) any { return len(c.Traces) },
		false, false, ""},
	{"WithLogger", hedge.WithLogger(slog.Default()), nil, func(c settings.Config) any { return len(c.Traces) },
		false, false, ""},
	{"WithSnapshot", hedge.WithSnapshot(nothingLearned()), nil, func(settings.Config) any { return nil }, false,
		false, ""},
	{"WithTargetName", hedge.WithTargetName(strings.ToLower), nil,
		func(c settings.Config) any { return c.TargetName != nil }, false, false, ""},
}

// TestCompared_EveryOption: a control group is compared with calls under the same settings. So each
// option of a method or target, and WithWaitForMessage, restarts the comparison, and the same
// options given again do not.
func TestCompared_EveryOption(t *testing.T) {
	compared := func(opts ...hedge.Option) string {
		opts = append([]hedge.Option{hedge.WithAllMethods(), hedge.WithControl(5)}, opts...)
		return (*registry.Registry)(hedgetest.New(t, opts...)).Method("t", "/s/M", time.Now()).Settings().Compared()
	}
	plain := compared()
	for _, o := range everyOption {
		if o.name == "WithControl" || !o.target && o.name != "WithWaitForMessage" { // a control group knows its share
			continue
		}
		if got := compared(o.a); got == plain || got != compared(o.a) {
			t.Errorf("%s: compared is %s, and again %s; without it %s", o.name, got, compared(o.a), plain)
		}
	}
}

// scope is where an option is set: for all, for a target, for a method, for a method of a target.
// The later one wins.
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
	{"method of a target", func(o hedge.Option) hedge.Option {
		return hedge.WithTargetOptions("t*", hedge.WithMethodOptions("/s/M", o))
	}, func(s steered) bool { return s.method }},
}

// Every option, at every place and at every pair of scopes, in both orders: it is an error, or the
// value of the later place is in force.
func TestRule20_EveryOptionEverywhere(t *testing.T) {
	made := func(t *testing.T, o steered, opts ...hedge.Option) any {
		t.Helper()
		s, err := hedge.New(append([]hedge.Option{hedge.WithAllMethods(), hedge.WithServiceConfig("{}")}, opts...)...)
		if err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		return o.shows(configFor(s, "t", "/s/M"))
	}
	for _, o := range everyOption {
		alone := made(t, o, o.a)
		for i, wide := range scopes {
			if !wide.may(o) {
				_, err := hedge.New(hedge.WithAllMethods(), wide.at(o.a))
				if want := o.name + " cannot be set for a "; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s for a %s: error %v, want %q", o.name, wide.name, err, want)
				}
				continue
			}
			if got := made(t, o, wide.at(o.a)); !cmp.Equal(got, alone) {
				t.Errorf("%s for the %s: %v, want %v", o.name, wide.name, got, alone)
			}
			for _, narrow := range scopes[i+1:] {
				if o.b == nil || !narrow.may(o) {
					continue
				}
				want := made(t, o, o.b)
				for _, opts := range [][]hedge.Option{{wide.at(o.a), narrow.at(o.b)}, {narrow.at(o.b), wide.at(o.a)}} {
					if got := made(t, o, opts...); !cmp.Equal(got, want) {
						t.Errorf("%s for the %s and the %s: %v, want %v", o.name, wide.name, narrow.name, got, want)
					}
				}
			}
		}
	}
}

// fieldOf is the name that an option's field in JSON has, if it has one.
func fieldOf(option string) string {
	return strings.ToLower(option[4:5]) + option[5:]
}

func hasField(option string) bool {
	_, err := config.Parse([]byte(`{"` + fieldOf(option) + `": 0}`))
	return err == nil || !strings.Contains(err.Error(), "unknown field")
}

// No option is missing above and in docs/options.md, and each cell there matches the code.
func TestDocs_EveryOptionIsInTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/options.md")
	if err != nil {
		t.Fatal(err)
	}
	without := regexp.MustCompile(`(?s)has no field in JSON: (.*?)\.`).FindString(string(page))
	for _, name := range exportedOptions(t) {
		i := slices.IndexFunc(everyOption, func(o steered) bool { return o.name == name })
		if i < 0 {
			t.Errorf("%s is missing in everyOption", name)
			continue
		}
		var also []string
		if o := everyOption[i]; o.target {
			also = append(also, "targets")
		}
		if everyOption[i].method {
			also = append(also, "methods")
		}
		if call := everyOption[i].call; call != "" {
			also = append(also, "`"+call+"`")
		}
		if also == nil {
			also = []string{"–"}
		}
		want := "| " + strings.Join(also, ", ") + " |"
		rows := regexp.MustCompile("(?m)^\\| `"+name+`\(.*$`).FindAllString(string(page), -1)
		for _, row := range rows {
			if !strings.HasSuffix(row, want) {
				t.Errorf("docs/options.md has %q, want it to end in %q", row, want)
			}
		}
		if len(rows) == 0 || hasField(name) == strings.Contains(without, "`"+name+"`") {
			t.Errorf("docs/options.md has %d rows for %s, or a wrong JSON field", len(rows), name)
		}
	}
}

// exportedOptions returns the names of the functions of package hedge that return an Option.
func exportedOptions(t *testing.T) (names []string) {
	t.Helper()
	api, err := os.ReadFile("../../api/v0.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range regexp.MustCompile(
		`(?m)^pkg github.com/grpchedge/hedge, func (With\w+)\(.* Option$`).FindAllSubmatch(api, -1) {
		names = append(names, string(f[1]))
	}
	if len(names) == 0 {
		t.Fatal("there are no options")
	}
	return names
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
		t.Errorf("%+v", got)
	}
}

// TestTargetPatterns checks which targets a pattern matches, and that rules for other targets cost a
// new method next to nothing: they are compared with Registry.mu held.
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
