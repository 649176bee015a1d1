package rpc_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

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
	if *c.Throttle != (rpc.RetryThrottling{MilliTokens: 10_000, MilliRatio: 100}) {
		t.Errorf("the throttle is %+v, want 10 tokens and a ratio of .1", c.Throttle)
	}
}

// hedging is a config in which the method a/b has this policy.
func hedging(policy string) string {
	return `{"methodConfig": [{"name": [{"service": "a", "method": "b"}], "hedgingPolicy": ` + policy + `}]}`
}

func TestParse_HedgingPolicy(t *testing.T) {
	type policy = rpc.HedgingPolicy
	for js, want := range map[string]*policy{
		`null`:                        nil,
		`{"maxAttempts": 2}`:          {Attempts: 2},
		`{"maxAttempts": 5}`:          {Attempts: 5},
		`{"maxAttempts": 6}`:          {Attempts: 5},
		`{"maxAttempts": 4000000000}`: {Attempts: 5},
		`{"maxAttempts": 0.3e1}`:      {Attempts: 3},
		`{"MAXATTEMPTS": 2}`:          {Attempts: 2},
		`{"maxAttempts": 2, "hedgingDelay": null, "nonFatalStatusCodes": null}`: {Attempts: 2},
		`{"maxAttempts": 2, "hedgingDelay": "0s"}`:                              {Attempts: 2},
		`{"maxAttempts": 2, "hedgingDelay": "0.000000001s"}`:                    {Attempts: 2, Delay: 1},
		`{"maxAttempts": 2, "hedgingDelay": "315576000000s"}`:                   {Attempts: 2, Delay: math.MaxInt64},
		`{"maxAttempts": 2, "nonFatalStatusCodes": []}`:                         {Attempts: 2},
		`{"maxAttempts": 2, "perAttemptRecvTimeout": {"a": []}, "x": 1}`:        {Attempts: 2},
		`{"maxAttempts": 2, "nonFatalStatusCodes": ["Unavailable", 14, "uNKNOWN", "CANCELLED"]}`: {Attempts: 2,
			NonFatal: []codes.Code{codes.Canceled, codes.Unknown, codes.Unavailable}},
	} {
		c, err := rpc.ParseServiceConfig(hedging(js))
		if got := c.Policy("/a/b"); err != nil || !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %+v, %v, want %+v", js, got, err, want)
		}
	}
}

func TestParse_Rejects(t *testing.T) {
	rejects := func(config string, want ...string) { // parts of the error: method, field, value
		t.Helper()
		c, err := rpc.ParseServiceConfig(config)
		if err == nil {
			t.Errorf("%s is accepted: %+v", config, c)
			return
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not name %q", config, err, part)
			}
		}
	}
	for config, want := range map[string]string{
		``:                                       "JSON",
		`[]`:                                     "array",
		`{}{}`:                                   "after top-level value",
		`{"methodConfig": {}}`:                   "methodConfig",
		`{"methodConfig": [{"name": [{}, {}]}]}`: "{}",
		`{"methodConfig": [{"name": [{"service": 3}]}]}`:                                      "ervice",
		`{"methodConfig": [{"name": [{"service": "a"}], "retryPolicy": {"maxAttempts": 1}}]}`: "retry policy", // by gRPC
		`{"methodConfig": [{"name": [{"service": "a"}], "timeout": "1"}]}`:                    "duration",     // by gRPC
		`{"loadBalancingConfig": [{"none_such": {}}]}`:                                        "none_such",    // by gRPC
	} {
		rejects(config, want)
	}
	rejects(`{"methodConfig": [{"name": [{"method": "b"}]}]}`, `"b"`, "service")
	rejects(`{"methodConfig": [{"name": [{"service": "a"}]}, {"name": [{"service": "b"}, {"service": "a"}]}]}`,
		"methodConfig[1]", "name: a")
	rejects(`{"methodConfig": [{"name": [{"service": "a"}], "hedgingPolicy": {"maxAttempts": 2},
		"retryPolicy": {"maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1,
			"retryableStatusCodes": [14]}}]}`, "[a]", "retryPolicy", "hedgingPolicy")

	for policy, want := range map[string][]string{ // field and value
		`{}`:                    {".maxAttempts", "required"},
		`{"maxAttempts": null}`: {".maxAttempts", "required"},
		`{"maxAttempts": 1}`:    {".maxAttempts", "1"},
		`{"maxAttempts": -3}`:   {".maxAttempts", "-3"},
		`{"maxAttempts": 2.5}`:  {".maxAttempts", "2.5"},
	} {
		rejects(hedging(policy), "a/b", "hedgingPolicy"+want[0], want[1])
	}
	rejects(hedging(`{"maxAttempts": "two"}`), "hedgingPolicy.maxAttempts", "string")
	rejects(hedging(`{"maxAttempts": 1e999}`), "hedgingPolicy.maxAttempts", "1e999")
	rejects(hedging(`3`), "hedgingPolicy", "number")
	for _, delay := range []string{`"1"`, `"1m"`, `1`, `"-1s"`, `"315576000001s"`} {
		rejects(hedging(`{"maxAttempts": 2, "hedgingDelay": `+delay+`}`), "a/b", "hedgingPolicy.hedgingDelay", delay)
	}
	for codes, want := range map[string]string{`["UNAVAILABLE", "GONE"]`: `"GONE"`, `[17]`: "17", `["ok"]`: `"ok"`,
		`[null]`: "null", `"UNAVAILABLE"`: `"UNAVAILABLE"`} {
		rejects(hedging(`{"maxAttempts": 2, "nonFatalStatusCodes": `+codes+`}`),
			"a/b", "hedgingPolicy.nonFatalStatusCodes", want)
	}
	for throttling, want := range map[string][]string{
		`{"tokenRatio": 0.1}`:                     {"maxTokens", "required"},
		`{"maxTokens": 0, "tokenRatio": 0.1}`:     {"maxTokens", "0"},
		`{"maxTokens": -1, "tokenRatio": 0.1}`:    {"maxTokens", "-1"},
		`{"maxTokens": 1001, "tokenRatio": 0.1}`:  {"maxTokens", "1001"},
		`{"maxTokens": 10.5, "tokenRatio": 0.1}`:  {"maxTokens", "10.5"},
		`{"maxTokens": 10}`:                       {"tokenRatio", "required"},
		`{"maxTokens": 10, "tokenRatio": 0}`:      {"tokenRatio", "0"},
		`{"maxTokens": 10, "tokenRatio": -1}`:     {"tokenRatio", "-1"},
		`{"maxTokens": 10, "tokenRatio": "x"}`:    {"tokenRatio", "string"},
		`{"maxTokens": 10, "tokenRatio": 0.0009}`: {"tokenRatio", "0.0009"},
		`3`: {"number"},
	} {
		rejects(`{"retryThrottling": `+throttling+`}`, append(want, "retryThrottling")...)
	}
}

func TestParse_RetryThrottling(t *testing.T) {
	for _, tc := range []struct {
		config string
		want   *rpc.RetryThrottling
	}{
		{`{}`, nil},
		{`{"retryThrottling": null}`, nil},
		{`{"retryThrottling": {"maxTokens": 1000, "tokenRatio": 0.001}}`, &rpc.RetryThrottling{1_000_000, 1}},
		{`{"retryThrottling": {"maxTokens": 1, "tokenRatio": 0.1239}}`, &rpc.RetryThrottling{1000, 123}},
		{`{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.029}}`, &rpc.RetryThrottling{10_000, 29}},
		{`{"retryThrottling": {"maxTokens": 1e1, "tokenRatio": 2}}`, &rpc.RetryThrottling{10_000, 2000}},
		{`{"retryThrottling": {"maxTokens": 10, "tokenRatio": 1e300}}`, &rpc.RetryThrottling{10_000, 10_000}},
	} {
		if c, err := rpc.ParseServiceConfig(tc.config); err != nil || !cmp.Equal(c.Throttle, tc.want) {
			t.Errorf("%s: %+v, %v, want %+v", tc.config, c, err, tc.want)
		}
	}
}

func TestPushback(t *testing.T) {
	const never = -time.Millisecond
	for _, tc := range []struct {
		values []string
		wait   time.Duration // negative: for good
	}{
		{nil, 0}, {[]string{"0"}, 0}, {[]string{"250"}, 250 * time.Millisecond}, {[]string{"-1"}, never},
		{[]string{"soon"}, never}, {[]string{"2147483648"}, never}, {[]string{"1", "2"}, never}, {[]string{""}, never},
	} {
		trailer := metadata.MD{"a": {"1"}, rpc.PushbackTrailer: slices.Clone(tc.values)}
		if wait, ok := rpc.Pushback(trailer); wait != tc.wait || ok != (tc.values != nil) {
			t.Errorf("%q: %v, %v, want %v", tc.values, wait, ok, tc.wait)
		}
	}
}
