package rpc_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const full = `{
	"loadBalancingConfig": [{"round_robin": {}}],
	"methodConfig": [
		{"name": [{"service": "pkg.Svc", "method": "Get"}],
		 "timeout": "1s", "waitForReady": true,
		 "hedgingPolicy": {"maxAttempts": 4, "hedgingDelay": "0.5s", "nonFatalStatusCodes": ["UNAVAILABLE", 13, "aborted"]}},
		{"name": [{"service": "pkg.Svc", "method": "Put"}], "timeout": "2s"},
		{"name": [{"service": "pkg.Svc"}], "hedgingPolicy": {"maxAttempts": 3}},
		{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "1s"}}
	],
	"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
}`

func TestParse_TheMostSpecificNameCounts(t *testing.T) {
	c, err := rpc.ParseServiceConfig(full)
	if err != nil {
		t.Fatal(err)
	}
	get := &rpc.HedgingPolicy{Attempts: 4, Delay: time.Second / 2,
		NonFatal: []codes.Code{codes.Aborted, codes.Internal, codes.Unavailable}}
	for method, want := range map[string]*rpc.HedgingPolicy{
		"/pkg.Svc/Get":   get,
		"/pkg.Svc/Put":   nil, // its own entry has no hedgingPolicy, and hides the service's
		"/pkg.Svc/Other": {Attempts: 3},
		"/pkg.Else/Get":  {Attempts: 2, Delay: time.Second},
		"":               {Attempts: 2, Delay: time.Second},
	} {
		if got := c.Policy(method); !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %+v, want %+v", method, got, want)
		}
	}
	if *c.Throttle != (rpc.Throttle{Tokens: 10, MilliRatio: 100}) {
		t.Errorf("%+v", c.Throttle)
	}
}

// hedging is a config in which the method a/b has this policy.
func hedging(policy string) string {
	return `{"methodConfig": [{"name": [{"service": "a", "method": "b"}], "hedgingPolicy": ` + policy + `}]}`
}

func TestParse_HedgingPolicy(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name, policy string
		want         *rpc.HedgingPolicy
	}{
		{"absent delay is none", `{"maxAttempts": 2}`, &rpc.HedgingPolicy{Attempts: 2}},
		{"null is absent", `{"maxAttempts": 2, "hedgingDelay": null, "nonFatalStatusCodes": null}`,
			&rpc.HedgingPolicy{Attempts: 2}},
		{"null policy", `null`, nil},
		{"five attempts", `{"maxAttempts": 5}`, &rpc.HedgingPolicy{Attempts: 5}},
		{"above five is five", `{"maxAttempts": 6}`, &rpc.HedgingPolicy{Attempts: 5}},
		{"far above five is five", `{"maxAttempts": 4000000000}`, &rpc.HedgingPolicy{Attempts: 5}},
		{"an integer in another form", `{"maxAttempts": 0.3e1}`, &rpc.HedgingPolicy{Attempts: 3}},
		{"no delay", `{"maxAttempts": 2, "hedgingDelay": "0s"}`, &rpc.HedgingPolicy{Attempts: 2}},
		{"a nanosecond", `{"maxAttempts": 2, "hedgingDelay": "0.000000001s"}`, &rpc.HedgingPolicy{Attempts: 2, Delay: 1}},
		{"the longest", `{"maxAttempts": 2, "hedgingDelay": "315576000000s"}`,
			&rpc.HedgingPolicy{Attempts: 2, Delay: math.MaxInt64}},
		{"codes in any case, by number, twice",
			`{"maxAttempts": 2, "hedgingDelay": "1s", "nonFatalStatusCodes": ["Unavailable", 14, "uNKNOWN", ` +
				`"CANCELLED"]}`,
			&rpc.HedgingPolicy{Attempts: 2, Delay: s, NonFatal: []codes.Code{codes.Canceled, codes.Unknown, codes.Unavailable}}},
		{"no codes", `{"maxAttempts": 2, "nonFatalStatusCodes": []}`, &rpc.HedgingPolicy{Attempts: 2}},
		{"unknown fields", `{"maxAttempts": 2, "perAttemptRecvTimeout": {"a": []}, "x": 1}`, &rpc.HedgingPolicy{Attempts: 2}},
		{"keys in another case", `{"MAXATTEMPTS": 2}`, &rpc.HedgingPolicy{Attempts: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := rpc.ParseServiceConfig(hedging(tc.policy))
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Policy("/a/b"); !cmp.Equal(got, tc.want, cmpopts.EquateEmpty()) {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestParse_Rejects(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		want         []string // parts of the error: method, field, value
	}{
		{"nothing", ``, []string{"JSON"}},
		{"no object", `[]`, []string{"array"}},
		{"two objects", `{}{}`, []string{"after top-level value"}},
		{"no list of methods", `{"methodConfig": {}}`, []string{"methodConfig"}},
		{"attempts absent", hedging(`{}`), []string{"a/b", "hedgingPolicy.maxAttempts", "required"}},
		{"attempts null", hedging(`{"maxAttempts": null}`), []string{"a/b", "hedgingPolicy.maxAttempts", "required"}},
		{"one attempt", hedging(`{"maxAttempts": 1}`), []string{"a/b", "hedgingPolicy.maxAttempts", "1"}},
		{"negative attempts", hedging(`{"maxAttempts": -3}`), []string{"a/b", "hedgingPolicy.maxAttempts", "-3"}},
		{"attempts and a half", hedging(`{"maxAttempts": 2.5}`), []string{"a/b", "hedgingPolicy.maxAttempts", "2.5"}},
		{"attempts in words", hedging(`{"maxAttempts": "two"}`), []string{"a/b", "hedgingPolicy: maxAttempts", "string"}},
		{"attempts beyond numbers", hedging(`{"maxAttempts": 1e999}`),
			[]string{"a/b", "hedgingPolicy: maxAttempts", "1e999"}},
		{"delay without a unit", hedging(`{"maxAttempts": 2, "hedgingDelay": "1"}`),
			[]string{"a/b", "hedgingPolicy.hedgingDelay", `"1"`}},
		{"delay in Go", hedging(`{"maxAttempts": 2, "hedgingDelay": "1m"}`),
			[]string{"a/b", "hedgingPolicy.hedgingDelay", `"1m"`}},
		{"delay as a number", hedging(`{"maxAttempts": 2, "hedgingDelay": 1}`),
			[]string{"a/b", "hedgingPolicy.hedgingDelay", "1"}},
		{"negative delay", hedging(`{"maxAttempts": 2, "hedgingDelay": "-1s"}`),
			[]string{"a/b", "hedgingPolicy.hedgingDelay", `"-1s"`}},
		{"delay too long", hedging(`{"maxAttempts": 2, "hedgingDelay": "315576000001s"}`),
			[]string{"a/b", "hedgingPolicy.hedgingDelay", "315576000001s"}},
		{"unknown code", hedging(`{"maxAttempts": 2, "nonFatalStatusCodes": ["UNAVAILABLE", "GONE"]}`),
			[]string{"a/b", "hedgingPolicy.nonFatalStatusCodes", `"GONE"`}},
		{"code too high", hedging(`{"maxAttempts": 2, "nonFatalStatusCodes": [17]}`),
			[]string{"a/b", "hedgingPolicy.nonFatalStatusCodes", "17"}},
		{"OK", hedging(`{"maxAttempts": 2, "nonFatalStatusCodes": ["ok"]}`),
			[]string{"a/b", "hedgingPolicy.nonFatalStatusCodes", `"ok"`}},
		{"null code", hedging(`{"maxAttempts": 2, "nonFatalStatusCodes": [null]}`),
			[]string{"a/b", "hedgingPolicy.nonFatalStatusCodes", "null"}},
		{"no list of codes", hedging(`{"maxAttempts": 2, "nonFatalStatusCodes": "UNAVAILABLE"}`),
			[]string{"a/b", "hedgingPolicy.nonFatalStatusCodes", `"UNAVAILABLE"`}},
		{"no policy", hedging(`3`), []string{"a/b", "hedgingPolicy", "number"}},
		{"both policies", `{"methodConfig": [{"name": [{"service": "a"}], "hedgingPolicy": {"maxAttempts": 2},
			"retryPolicy": {"maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": [14]}}]}`,
			[]string{"[a]", "retryPolicy", "hedgingPolicy"}},
		{"one name twice", `{"methodConfig": [{"name": [{"service": "a"}]}, {"name": [{"service": "b"}, ` +
			`{"service": "a"}]}]}`, []string{"methodConfig[1]", "name: a"}},
		{"the empty name twice", `{"methodConfig": [{"name": [{}, {}]}]}`, []string{"{}"}},
		{"a method without service", `{"methodConfig": [{"name": [{"method": "b"}]}]}`, []string{`"b"`, "service"}},
		{"a method that is no string", `{"methodConfig": [{"name": [{"service": 3}]}]}`, []string{"ervice"}},

		{"gRPC rejects a retry policy",
			`{"methodConfig": [{"name": [{"service": "a"}], "retryPolicy": {"maxAttempts": 1}}]}`, []string{
				"retry policy"}},
		{"gRPC rejects a timeout", `{"methodConfig": [{"name": [{"service": "a"}], "timeout": "1"}]}`, []string{"duration"}},
		{"gRPC rejects a balancer", `{"loadBalancingConfig": [{"none_such": {}}]}`, []string{"none_such"}},

		{"tokens absent", `{"retryThrottling": {"tokenRatio": 0.1}}`, []string{"retryThrottling", "maxTokens", "required"}},
		{"tokens zero", `{"retryThrottling": {"maxTokens": 0, "tokenRatio": 0.1}}`,
			[]string{"retryThrottling", "maxTokens", "0"}},
		{"tokens negative", `{"retryThrottling": {"maxTokens": -1, "tokenRatio": 0.1}}`,
			[]string{"retryThrottling", "maxTokens", "-1"}},
		{"tokens above 1000", `{"retryThrottling": {"maxTokens": 1001, "tokenRatio": 0.1}}`,
			[]string{"retryThrottling", "maxTokens", "1001"}},
		{"tokens and a half", `{"retryThrottling": {"maxTokens": 10.5, "tokenRatio": 0.1}}`,
			[]string{"retryThrottling", "maxTokens", "10.5"}},
		{"ratio absent", `{"retryThrottling": {"maxTokens": 10}}`, []string{"retryThrottling", "tokenRatio", "required"}},
		{"ratio zero", `{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0}}`,
			[]string{"retryThrottling", "tokenRatio", "0"}},
		{"ratio negative", `{"retryThrottling": {"maxTokens": 10, "tokenRatio": -1}}`,
			[]string{"retryThrottling", "tokenRatio", "-1"}},
		{"ratio in words", `{"retryThrottling": {"maxTokens": 10, "tokenRatio": "x"}}`,
			[]string{"retryThrottling", "tokenRatio", "string"}},
		{"nothing left of the ratio", `{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.0009}}`,
			[]string{"retryThrottling", "tokenRatio", "0.0009"}},
		{"no throttling", `{"retryThrottling": 3}`, []string{"retryThrottling", "number"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := rpc.ParseServiceConfig(tc.config)
			if err == nil {
				t.Fatalf("accepted: %+v", c)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestParse_RetryThrottling(t *testing.T) {
	for _, tc := range []struct {
		config string
		want   *rpc.Throttle
	}{
		{`{}`, nil},
		{`{"retryThrottling": null}`, nil},
		{`{"retryThrottling": {"maxTokens": 1000, "tokenRatio": 0.001}}`, &rpc.Throttle{Tokens: 1000, MilliRatio: 1}},
		{`{"retryThrottling": {"maxTokens": 1, "tokenRatio": 0.1239}}`, &rpc.Throttle{Tokens: 1, MilliRatio: 123}},
		{`{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.029}}`, &rpc.Throttle{Tokens: 10, MilliRatio: 29}},
		{`{"retryThrottling": {"maxTokens": 1e1, "tokenRatio": 2}}`, &rpc.Throttle{Tokens: 10, MilliRatio: 2000}},
		{`{"retryThrottling": {"maxTokens": 10, "tokenRatio": 1e300}}`, &rpc.Throttle{Tokens: 10, MilliRatio: 10_000}},
	} {
		c, err := rpc.ParseServiceConfig(tc.config)
		if err != nil {
			t.Errorf("%s: %v", tc.config, err)
			continue
		}
		if !cmp.Equal(c.Throttle, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.config, c.Throttle, tc.want)
		}
	}
}
