package hedge_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grpchedge/hedge"
)

// whole has every field.
const whole = `{
  "allMethods": true,
  "budgetPercent": 12.5,
  "control": 1.5,
  "dryRun": true,
  "hedgesOfHedges": true,
  "idempotentOnly": true,
  "maxHedges": 3,
  "maxMemory": 1048576,
  "methodOptions": {
    "/pkg.Svc/Get*": {
      "budgetPercent": 3,
      "trigger": {
        "fixed": "10ms"
      }
    },
    "/pkg.Svc/Put": {
      "off": true
    }
  },
  "methods": [
    "/pkg.Svc/*"
  ],
  "minDelay": "2ms",
  "nonFatalCodes": [
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "UNAVAILABLE"
  ],
  "off": true,
  "otherBackendOnly": true,
  "readOnlyMethods": [
    "/pkg.Svc/List*"
  ],
  "resetLimit": {
    "per": "1m0s",
    "resets": 100
  },
  "serviceConfig": {
    "methodConfig": [
      {
        "name": [
          {}
        ],
        "hedgingPolicy": {
          "maxAttempts": 2
        }
      }
    ]
  },
  "serviceConfigOnly": true,
  "serviceConfigUnbudgeted": true,
  "targetOptions": {
    "dns:///*": {
      "methodOptions": {
        "/pkg.Svc/Get": {
          "maxHedges": 0
        }
      },
      "throttle": {
        "maxTokens": 10,
        "ratio": 0.1
      }
    }
  },
  "throttle": {
    "maxTokens": 100,
    "ratio": 1.5
  },
  "trigger": {
    "auto": {
      "targetPercentile": 0.95
    }
  },
  "warmup": {
    "calls": 5,
    "delay": "100ms"
  },
  "window": "1m0s",
  "withoutGuard": true
}`

// What Config returns makes the same configuration again.
func TestParseConfig_RoundTrips(t *testing.T) {
	for name, text := range map[string]string{
		"everything": whole,
		"percentile": `{"allMethods": true, "trigger": {"percentile": 0.9}}`,
		"little":     `{"allMethods": true}`,
		"false":      `{"allMethods": true, "dryRun": false}`,
	} {
		opts, err := hedge.ParseConfig([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := hedge.New(opts...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want, got any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(s.Config(), &got); err != nil {
			t.Fatal(err)
		}
		if name == "false" {
			delete(want.(map[string]any), "dryRun") // as if it were not there
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Every error names the path, the value and what is allowed.
func TestParseConfig_Errors(t *testing.T) {
	for text, want := range map[string][]string{
		``:                                 {"not JSON"},
		`[]`:                               {"the configuration", `"[]"`, "an object"},
		`{"maxHedges": 2} {}`:              {"after the JSON object"},
		`{"maxHedge": 2}`:                  {"maxHedge: there is no such field"},
		`{"maxHedges": 2, "maxHedges": 3}`: {"maxHedges", "given twice"},
		`{"maxHedges": 7}`:                 {"maxHedges", "7", "0 to 4"},
		`{"maxHedges": "two"}`:             {"maxHedges", "two", "0 to 4"},
		`{"maxHedges": 1.5}`:               {"maxHedges", "1.5", "a whole number, 0 to 4"},
		`{"maxHedges": null}`:              {"maxHedges", "null", "0 to 4"},
		`{"budgetPercent": 1000}`:          {"budgetPercent", "1000", "0 to 400"},
		`{"minDelay": "1 fortnight"}`:      {"minDelay", "1 fortnight", "a duration"},
		`{"minDelay": 5}`:                  {"minDelay", "5", "a duration"},
		`{"minDelay": "-1s"}`:              {"minDelay", "-1s", "negative"},
		`{"dryRun": 1}`:                    {"dryRun", "1", "true or false"},
		`{"trigger": {}}`:                  {"trigger", "{}", "one of"},
		`{"trigger": {"fixed": "1s", "percentile": 0.5}}`:                         {"trigger", "one of"},
		`{"trigger": {"percentile": 90}}`:                                         {"trigger", "Percentile(90)", "between 0 and 1"},
		`{"warmup": {"call": 3}}`:                                                 {"warmup", "call", "calls"},
		`{"nonFatalCodes": ["UNAVAILABEL"]}`:                                      {"nonFatalCodes", "UNAVAILABEL", "a list of statuses"},
		`{"throttle": {"maxTokens": 0, "ratio": 1}}`:                              {"throttle", "maxTokens: 0", "(0, 1000]"},
		`{"methods": ["Get"]}`:                                                    {"methods", `"Get"`, "/service/method"},
		`{"methods": []}`:                                                         {"methods", "at least one"},
		`{"methodOptions": {"/s/M": {"window": "1s"}}}`:                           {`methodOptions`, "/s/M", "WithWindow cannot be set for a method"},
		`{"methodOptions": {"/s/M": {"off": 3}}}`:                                 {`methodOptions["/s/M"].off`, `"3"`, "true or false"},
		`{"methodOptions": {"/s/M": {"of": true}}}`:                               {`methodOptions["/s/M"].of: there is no such field`},
		`{"targetOptions": {"t": {"methodOptions": {"/s/M": {"maxHedges": 9}}}}}`: {`targetOptions.t.methodOptions["/s/M"].maxHedges`, "9", "0 to 4"},
		`{"serviceConfig": {"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 1}}]}}`: {"serviceConfig", "maxAttempts"},
	} {
		_, err := hedge.ParseConfig([]byte(text))
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		for _, part := range append(want, "hedge: ParseConfig: ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q has no %q", text, err, part)
			}
		}
	}
}

// Whatever the text, it is an error or makes options whose JSON makes them again.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"methodOptions": {"/s/M": {"trigger": {"percentile": 0.5}}}}`))
	f.Add([]byte(`{"trigger": {"auto": {}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		opts, err := hedge.ParseConfig(text)
		if err != nil {
			return
		}
		s, err := hedge.New(opts...)
		if err != nil {
			return
		}
		again, err := hedge.ParseConfig(s.Config())
		if err != nil {
			t.Fatalf("%s: %v", s.Config(), err)
		}
		second, err := hedge.New(again...)
		if err != nil {
			t.Fatalf("%s: %v", s.Config(), err)
		}
		if diff := cmp.Diff(string(s.Config()), string(second.Config())); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
