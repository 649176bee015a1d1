package serviceconfig_test

import (
	"encoding/json"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// FuzzParse looks for a config that makes the parser panic, that is accepted beyond gRPC's limits, or whose meaning
// does not survive being written down again.
func FuzzParse(f *testing.F) {
	for _, js := range []string{
		``, `{}`, `null`, `[]`, full,
		`{"methodConfig":[{"name":[{}],"hedgingPolicy":{"maxAttempts":2}}]}`,
		`{"methodConfig":[{"name":[{"service":"a","method":"b"},{"service":"a"}],"hedgingPolicy":{"maxAttempts":1e1,"hedgingDelay":"-0s","nonFatalStatusCodes":["ok",null,17]}}]}`,
		`{"methodConfig":[{"name":null,"retryPolicy":{},"hedgingPolicy":null}],"retryThrottling":{"maxTokens":1.0,"tokenRatio":0.0005}}`,
		`{"retryThrottling":{"maxTokens":1000,"tokenRatio":1e300}}`,
	} {
		f.Add(js, "/a/b")
	}
	f.Fuzz(func(t *testing.T, js, method string) {
		c, err := serviceconfig.Parse(js)
		if err != nil {
			if c != nil {
				t.Fatal("a config and an error")
			}
			return
		}
		again := map[string]any{}
		if th := c.Throttle; th != nil {
			if th.Tokens < 1 || th.Tokens > 1000 || th.MilliRatio < 1 || th.MilliRatio > 1000*th.Tokens {
				t.Fatalf("throttle %+v", th)
			}
			again["retryThrottling"] = map[string]any{"maxTokens": th.Tokens, "tokenRatio": float64(th.MilliRatio) / 1000}
		}
		p := c.Policy(method)
		if p != nil {
			if p.Attempts < 2 || p.Attempts > 5 || p.Delay < 0 || slices.Contains(p.NonFatal, codes.OK) ||
				!slices.IsSorted(p.NonFatal) || len(p.NonFatal) > 16 {
				t.Fatalf("policy %+v", p)
			}
			again["methodConfig"] = []any{map[string]any{"name": []any{map[string]any{}}, "hedgingPolicy": written(p)}}
		}
		text, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		c2, err := serviceconfig.Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !samePolicy(p, c2.Policy(method)) || (c.Throttle == nil) != (c2.Throttle == nil) ||
			c.Throttle != nil && *c.Throttle != *c2.Throttle {
			t.Fatalf("%q means something else when written as %s", js, text)
		}
	})
}
