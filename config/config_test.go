package config_test

import (
	"fmt"
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

// whole has every field.
const whole = `{
  "allMethods": true,
  "budgetPercent": 12.5,
  "control": 1.5,
  "dryRun": true,
  "failover": ["ABORTED", 14],
  "guard": false,
  "idempotentOnly": true,
  "maxHedges": 3,
  "maxMethods": 1048576,
  "methodOptions": {"/pkg.Svc/Get*": {"budgetPercent": 3, "trigger": {"fixed": "10ms"}}, "/pkg.Svc/Put": {"off": true}},
  "methods": ["/pkg.Svc/*"],
  "minDelay": "2ms",
  "nonFatalCodes": ["CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"],
  "off": true,
  "readOnlyMethods": ["/pkg.Svc/List*"],
  "hedgeLimit": {"hedges": 100, "per": "1m0s"},
  "serviceConfig": {"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2}}]},
  "singleRequest": ["/pkg.Svc/Infer"],
  "targetOptions": {"dns:///*": {
    "maxHedges": 0,
    "serviceConfig": {"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}}},
  "trigger": {"auto": {"noLaterThan": "2s"}},
  "warmup": {"calls": 5, "delay": "100ms"},
  "waitForMessage": ["/pkg.Svc/Read"],
  "window": "1m0s"
}`

// configOf returns the configuration of a method of a target, without fields that cannot be
// compared.
func configOf(t *testing.T, opts []hedge.Option, target, method string) *settings.Config {
	c := (*registry.Registry)(hedgetest.New(t, opts...)).Config()
	in := *c.ForMethod(c.ForTarget(target), method)
	in.TargetRules, in.MethodRules, in.Index, in.Options, in.Compared = nil, nil, nil, nil, ""
	return &in
}

// Every field is its option.
func TestParse_EveryField(t *testing.T) {
	trigger := func(trigger hedge.Trigger) []hedge.Option {
		return []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(trigger)}
	}
	for text, want := range map[string][]hedge.Option{
		whole: {
			hedge.WithAllMethods(), hedge.WithBudgetPercent(12.5), hedge.WithControl(1.5), hedge.WithDryRun(true),
			hedge.WithFailover(codes.Aborted, codes.Unavailable), hedge.WithGuard(false),
			hedge.WithIdempotentOnly(), hedge.WithMaxHedges(3), hedge.WithMaxMethods(1 << 20),
			hedge.WithMethodOptions("/pkg.Svc/Get*", hedge.WithBudgetPercent(3),
				hedge.WithTrigger(hedge.Fixed(10*time.Millisecond))),
			hedge.WithMethodOptions("/pkg.Svc/Put", hedge.WithOff(true)),
			hedge.WithMethods("/pkg.Svc/*"), hedge.WithMinDelay(2 * time.Millisecond),
			hedge.WithNonFatalCodes(codes.Canceled, codes.DeadlineExceeded, codes.Unavailable), hedge.WithOff(true),
			hedge.WithReadOnlyMethods("/pkg.Svc/List*"),
			hedge.WithHedgeLimit(100, time.Minute),
			hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2}}]}`),
			hedge.WithTargetOptions("dns:///*", hedge.WithMaxHedges(0),
				hedge.WithServiceConfig(`{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}`)),
			hedge.WithTrigger(hedge.Auto(hedge.NoLaterThan(2 * time.Second))),
			hedge.WithWarmup(5, 100*time.Millisecond),
			hedge.WithWindow(time.Minute),
			hedge.WithSingleRequest("/pkg.Svc/Infer"),
			hedge.WithWaitForMessage("/pkg.Svc/Read"),
		},
		`{"allMethods": true, "trigger": {"percentile": 0.9}}`:              trigger(hedge.Percentile(0.9)),
		`{"allMethods": true, "trigger": {"auto": {}}}`:                     trigger(hedge.Auto()),
		`{"allMethods": true, "guard": true, "dryRun": false, "off": null}`: {hedge.WithAllMethods()},
		`{"allMethods": true, "maxHedges": 2.0, "maxMethods": 1e+08, "warmup": {"calls": 3E1, "delay": "0s"}}`: {
			hedge.WithAllMethods(), hedge.WithMaxHedges(2), hedge.WithMaxMethods(1e8),
			hedge.WithWarmup(30, 0)}, // as programs that convert YAML write it
		`{"allMethods": true, "failover": []}`:             {hedge.WithAllMethods(), hedge.WithFailover()},
		`{"allMethods": true, "warmup": {"calls": 7}}`:     {hedge.WithAllMethods(), hedge.WithWarmup(7, 0)},
		`{"allMethods": true, "warmup": {"delay": "1s"}}`:  {hedge.WithAllMethods(), hedge.WithWarmup(20, time.Second)},
		`{"allMethods": true, "warmup": {}, "control": 0}`: {hedge.WithAllMethods()},
		`{"readOnlyMethods": ["/s/M"], "trigger": {"fixed": "1s"}}`: {
			hedge.WithReadOnlyMethods("/s/M"), hedge.WithTrigger(hedge.Fixed(time.Second))},
	} {
		got, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s is rejected: %v", text, err)
		}
		for _, at := range [][2]string{{"t", "/s/M"}, {"t", "/pkg.Svc/GetAll"}, {"t", "/pkg.Svc/Put"},
			{"dns:///a", "/pkg.Svc/Get"}} {
			diff := cmp.Diff(configOf(t, want, at[0], at[1]), configOf(t, got, at[0], at[1]),
				cmp.AllowUnexported(rpc.ServiceConfig{}))
			if diff != "" {
				t.Errorf("%s, %s of %s (-want +got):\n%s", text, at[1], at[0], diff)
			}
		}
	}
}

// Every error says where it is, and names the option or the field with its value.
func TestParse_Errors(t *testing.T) {
	for _, tc := range [][2]string{
		{``, "line 1:1"},
		{`{"maxHedges": 2`, "unexpected EOF"},
		{`{"maxHedges": 2} {}`, "line 1:18"},
		{`{"maxHedge": 2}`, `(line 1:2): unknown field "maxHedge"`},
		{`{"maxHedges": 2, "maxHedges": 3}`, `duplicate field "maxHedges"`},
		{`{"maxHedges": 7}`, "WithMaxHedges(7): must be 0 to 4"},
		{`{"maxHedges": "2"}`, `maxHedges: "2": must not be in quotes`},
		{`{"budgetPercent": "NaN"}`, `budgetPercent: "NaN": must not be in quotes`},
		{`{"warmup": {"calls": "3"}}`, `warmup.calls: "3": must not be in quotes`},
		{`{"targetOptions": {"t": {"max_hedges": "2"}}}`, `targetOptions["t"]: max_hedges: "2": must not be in quotes`},
		{`{"readOnlyMethods": ["/shop.Catalog/* "]}`,
			`WithReadOnlyMethods("/shop.Catalog/* "): must not begin or end with white space`},
		{`{"maxHedges": "two"}`, `invalid value for int32 field maxHedges: "two"`},
		{`{"maxMethods": 1e19}`, "maxMethods: 1e19"},
		{`{"minDelay": "1 fortnight"}`, `minDelay: "1 fortnight" is not a duration such as "1.5s"`},
		{`{"dryRun": 1}`, "bool field dryRun: 1"},
		{`{"trigger": {}}`, "trigger: must have one of"},
		{`{"trigger": {"fixed": "1s", "percentile": 0.5}}`, "(line 1:29)"},
		{`{"trigger": {"fixed": "soon"}}`, `trigger.fixed: "soon" is not a duration`},
		{`{"warmup": {"calls": 3, "delay": ""}}`, `warmup.delay: "" is not a duration`},
		{`{"methods": "/s/M"}`, "(line 1:13)"},
		{`{"methods": [], "idempotentOnly": true}`, "methods: must have at least one pattern"},
		{`{"wait_for_message": [ ]}`, "wait_for_message: must have at least one pattern"},
		{`{"nonFatalCodes": ["UNAVAILABEL"]}`, `nonFatalCodes: "UNAVAILABEL" is not a status`},
		{`{"failover": ["DOWN"]}`, `failover: "DOWN" is not a status`},
		{`{"methodOptions": {"/s/M": null}}`, "(line 1:28)"},
		{`{"methodOptions": {"/s/M": {}, "/s/M": {}}}`, `duplicate map key "/s/M"`},
		{`{"methodOptions": {"/s/M": {"methodOptions": {"/s/M": {}}}}}`,
			`WithMethodOptions cannot be set for a method`},
		{`{"methodOptions": {"/s/M": {"minDelay": ""}}}`, `methodOptions["/s/M"]: minDelay: ""`},
		{`{"targetOptions": {"": {}}}`, "must not be empty"},
		{`{"targetOptions": {"t": {"methodOptions": {"/s/M": {}}}}}`,
			`WithTargetOptions("t"): WithMethodOptions cannot be set for a target`},
		{`{"targetOptions": {"t": {"maxHedges": 9}}}`, `WithTargetOptions("t"): WithMaxHedges(9)`},
		{`{"targetOptions": {"t": {"warmup": {"delay": "x"}}}}`, `targetOptions["t"]: warmup.delay`},
		{nested(4000), "WithTargetOptions cannot be set for a target"},
		{strings.Repeat("[", 20_000), "line 1:1"},
	} {
		text, want := tc[0], tc[1]
		_, err := config.Parse([]byte(text))
		got := strings.ReplaceAll(fmt.Sprint(err), "\u00a0", " ") // protobuf writes either space
		if !strings.Contains(got, want) || want != "" && !strings.HasPrefix(got, "hedge: config: ") {
			t.Errorf("%.200s: error %.400q has no %q", text, got, want)
		}
	}
}

// After an error the options in force stay, but "off": true takes effect.
func TestUpdate(t *testing.T) {
	for _, tc := range []struct {
		text, err string
		off       bool
		maxHedges int
	}{
		{text: `{"allMethods": true, "maxHedges": 1}`, maxHedges: 1},
		{text: `{"allMethods": true, "maxHedges": 1, "off": true}`, off: true, maxHedges: 1},
		{text: `{"window": "10s", "off": true}`, err: "WithWindow(10s): must be 30s", off: true, maxHedges: 3},
		{text: `{"window": "10s"}`, err: "option that selects methods", maxHedges: 3},
		{text: `{"maxHedges": 9, "off": true}`, err: "WithMaxHedges(9)", off: true, maxHedges: 3},
		{text: `{"off": true, "maxHedge": 9}`, err: "unknown field", off: true, maxHedges: 3},
		{text: `{"maxHedges": "two", "off": true}`, err: "invalid value", off: true, maxHedges: 3},
		{text: `{"off": true, "maxHedges": 2`, err: "unexpected EOF", off: true, maxHedges: 3},
		{text: `{"off": true, "maxHedges": 2,}`, err: "line 1:30", off: true, maxHedges: 3},
		{text: `{"maxHedges": {, "off": true}`, err: "line 1:15", maxHedges: 3},
		{text: `{"off": "true"}`, err: "bool field off", maxHedges: 3},
		{text: `{"off": false, "maxHedges": 9}`, err: "WithMaxHedges(9)", maxHedges: 3},
		{text: `{"methodOptions": {"/s/M": {"off": true, "maxHedges": 9}}}`, err: "WithMaxHedges(9)", maxHedges: 3},
		{text: ``, err: "line 1:1", maxHedges: 3},
		{text: `true`, err: "line 1:1", maxHedges: 3},
	} {
		s := hedgetest.All(t, hedge.WithMaxHedges(3))
		r := (*registry.Registry)(s)
		r.Method("t", "/s/M", time.Now())
		err := config.Update(s, []byte(tc.text))
		c := r.Method("t", "/s/M", time.Now()).Settings()
		if c.Off != tc.off || c.MaxHedges != tc.maxHedges {
			t.Errorf("%s: off %v, %d hedges, want %v, %d", tc.text, c.Off, c.MaxHedges, tc.off, tc.maxHedges)
		}
		got := strings.ReplaceAll(fmt.Sprint(err), "\u00a0", " ")
		if (err == nil) != (tc.err == "") || !strings.Contains(got, tc.err) || r.Configured().Refused != err {
			t.Errorf("%s: error %v, recorded as %v, want %q", tc.text, err, r.Configured().Refused, tc.err)
		}
	}
}

// nested returns a text of nested rules for targets. A rule that is not allowed is found before its
// content is read.
func nested(deep int) string {
	return strings.Repeat(`{"targetOptions": {"t": `, deep) + "{}" + strings.Repeat("}}", deep)
}

// Any text is an error, or makes options that New accepts with an option that selects methods.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"methodOptions": {"/s/M": {"trigger": {"percentile": 0.5}}}}`))
	f.Add([]byte(`{"trigger": {"auto": {}}}`))
	f.Add([]byte(`{"serviceConfig": {"methodConfig":[{"name":[{"service":"a","method":"b"},{"service":"a"}],` +
		`"hedgingPolicy":{"maxAttempts":1e1,"hedgingDelay":"-0s","nonFatalStatusCodes":["ok",null,17]}}]}}`))
	f.Add([]byte(`{"allMethods": true, "control": 7, "warmup": {"calls": 1e1, "delay": "1us"}, "hedgeLimit": ` +
		`{"resets": 0, "per": "0s"}}`))
	f.Add([]byte(`{"allMethods": true, "serviceConfig": {"retryThrottling": {"maxTokens": 10, "tokenRatio": ` +
		`1.0019}}, "targetOptions": {"*": {"off": false}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		opts, err := config.Parse(text)
		if err != nil {
			return
		}
		if _, err := hedge.New(append(opts, hedge.WithAllMethods())...); err != nil {
			t.Fatal(err)
		}
	})
}
