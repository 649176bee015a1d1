package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// whole has every field.
const whole = `{
  "allMethods": true,
  "budgetPercent": 12.5,
  "control": 1.5,
  "dryRun": true,
  "guard": false,
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
  "targetOptions": {
    "dns:///*": {
      "methodOptions": {
        "/pkg.Svc/Get": {
          "maxHedges": 0
        }
      },
      "serviceConfig": {
        "retryThrottling": {
          "maxTokens": 10,
          "tokenRatio": 0.1
        }
      }
    }
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
  "window": "1m0s"
}`

// What Format returns makes the same configuration again.
func TestParse_RoundTrips(t *testing.T) {
	for name, text := range map[string]string{
		"everything": whole,
		"percentile": `{"allMethods": true, "trigger": {"percentile": 0.9}}`,
		"little":     `{"allMethods": true}`,
		"false":      `{"allMethods": true, "dryRun": false}`,
	} {
		opts, err := config.Parse([]byte(text))
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
		if err := json.Unmarshal(config.Format(s), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Every error names the path, the value and what is allowed.
func TestParse_Errors(t *testing.T) {
	for text, want := range map[string][]string{
		``:                                 {"not JSON, at byte 0 of 0"},
		`{"maxHedges": 2`:                  {"not JSON, at byte 15 of 15", "unexpected EOF"},
		`{"maxHedges": 2,}`:                {"not JSON, at byte 17 of 17", "'}'"},
		`null`:                             {"the configuration", `"null"`, "an object"},
		`[]`:                               {"the configuration", `"[]"`, "an object"},
		`{"maxHedges": 2} {}`:              {"after the JSON object", `"{}"`},
		`{"maxHedge": 2}`:                  {"maxHedge: there is no such field", "maxHedges"},
		`{"": 2}`:                          {`[""]: there is no such field`, "maxHedges"},
		`{"maxHedges": 2, "maxHedges": 3}`: {"maxHedges", "given twice"},
		`{"maxHedges": 7}`:                 {"maxHedges", "7", "0 to 4"},
		`{"maxHedges": "two"}`:             {"maxHedges", "two", "0 to 4"},
		`{"maxHedges": 1.5}`:               {"maxHedges", "1.5", "a whole number, 0 to 4"},
		`{"maxHedges": null}`:              {"maxHedges", "null", "0 to 4"},
		`{"maxHedges": 1e400}`:             {"maxHedges", "1e400", "a whole number, 0 to 4"},
		`{"maxMemory": 1e19}`:              {"maxMemory", "1e19", "a whole number of bytes"},
		`{"budgetPercent": 1e400}`:         {"budgetPercent", "1e400", "a number, 0 to 400"},
		`{"allMethods": null}`:             {"allMethods", "null", "true or false"},
		`{"control": "5"}`:                 {"control", "5", "0 to 100"},
		`{"budgetPercent": 1000}`:          {"budgetPercent", "1000", "0 to 400"},
		`{"minDelay": "1 fortnight"}`:      {"minDelay", "1 fortnight", "a duration"},
		`{"minDelay": 5}`:                  {"minDelay", "5", "a duration"},
		`{"minDelay": "-1s"}`:              {"minDelay", "-1s", "negative"},
		`{"dryRun": 1}`:                    {"dryRun", "1", "true or false"},
		`{"trigger": {}}`:                  {"trigger", "{}", "one of"},
		`{"trigger": {"fixed": "1s", "percentile": 0.5}}`:                           {"trigger", "one of"},
		`{"trigger": {"percentile": 90}}`:                                           {"trigger", "Percentile(90)", "between 0 and 1"},
		`{"trigger": {"fixed": "1s", "fixed": "2s"}}`:                               {"trigger.fixed: the field is given twice"},
		`{"trigger": {"Fixed": "1s"}}`:                                              {"trigger.Fixed: there is no such field", "auto, percentile, fixed"},
		`{"trigger": {"auto": {}, "percentile": null}}`:                             {"trigger", "null", "one of"},
		`{"trigger": {"auto": {"targetPercentile": null}}}`:                         {"trigger.auto", "null", "one of"},
		`{"trigger": {"auto": {"targetPercentil": 1}}}`:                             {"trigger.auto.targetPercentil: there is no such field", "targetPercentile"},
		`{"trigger": {"auto": 1}}`:                                                  {"trigger.auto", `"1"`, "one of"},
		`{"warmup": {"calls": 1, "delay": "0s", "call": 3}}`:                        {"warmup.call: there is no such field", "calls, delay"},
		`{"warmup": {"calls": 3}}`:                                                  {"warmup", "calls", `{"calls": 20, "delay": "0s"}`},
		`{"warmup": {"calls": null, "delay": "0s"}}`:                                {"warmup", "null", `{"calls": 20, "delay": "0s"}`},
		`{"warmup": {"calls": 1, "delay": "0s", "calls": 2}}`:                       {"warmup.calls: the field is given twice"},
		`{"resetLimit": {"per": "1m"}}`:                                             {"resetLimit", "1m", `{"resets": 100, "per": "1m"}`},
		`{"methods": "/s/M"}`:                                                       {"methods", "/s/M", "a list of patterns"},
		`{"methods": [null]}`:                                                       {"methods", `""`, "/service/method"},
		`{"serviceConfig": 3}`:                                                      {"serviceConfig", `"3"`, "an object"},
		`{"serviceConfig": {"methodConfig": 3}}`:                                    {"serviceConfig", "methodConfig", "a number is not allowed here"},
		`{"methodOptions": {"": {}}}`:                                               {`methodOptions[""]`, "/service/method"},
		`{"methodOptions": {"/s/M": null}}`:                                         {`methodOptions["/s/M"]`, "null", "an object"},
		`{"methodOptions": {"/s/M": {}, "/s/M": {}}}`:                               {`methodOptions["/s/M"]`, "given twice"},
		`{"methodOptions": {"/s/M": {"allMethods": false}}}`:                        {`methodOptions["/s/M"].allMethods: WithAllMethods cannot be set for a method`, "maxHedges"},
		`{"methodOptions": {"/s/M": {"methodOptions": {}}}}`:                        {`methodOptions["/s/M"].methodOptions: WithMethodOptions cannot be set for a method`},
		`{"targetOptions": {"": {}}}`:                                               {`targetOptions[""]`, "must not be empty"},
		nested(4000):                                                                {"targetOptions.t.targetOptions: WithTargetOptions cannot be set for a target"},
		strings.Repeat("[", 20_000):                                                 {"not JSON", "max depth"},
		`{"nonFatalCodes": ["UNAVAILABEL"]}`:                                        {"nonFatalCodes", "UNAVAILABEL", "a list of statuses"},
		`{"serviceConfig": {"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}}}`: {"serviceConfig", "maxTokens: 0", "(0, 1000]"},
		`{"methods": ["Get"]}`:                                                      {"methods", `"Get"`, "/service/method"},
		`{"methods": []}`:                                                           {"methods", "at least one"},
		`{"methodOptions": {"/s/M": {"window": "1s"}}}`:                             {`methodOptions["/s/M"].window: WithWindow cannot be set for a method`},
		`{"methodOptions": {"/s/M": {"off": 3}}}`:                                   {`methodOptions["/s/M"].off`, `"3"`, "true or false"},
		`{"methodOptions": {"/s/M": {"of": true}}}`:                                 {`methodOptions["/s/M"].of: there is no such field`},
		`{"targetOptions": {"t": {"methodOptions": {"/s/M": {"maxHedges": 9}}}}}`:   {`targetOptions.t.methodOptions["/s/M"].maxHedges`, "9", "0 to 4"},
		`{"serviceConfig": {"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 1}}]}}`: {"serviceConfig", "maxAttempts"},
	} {
		_, err := config.Parse([]byte(text))
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		for _, part := range append(want, "hedge: config: ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q has no %q", text, err, part)
			}
		}
	}
}

// nested is a text in which rules for targets contain each other. What is not allowed is found before what it contains is read.
func nested(deep int) string {
	return strings.Repeat(`{"targetOptions": {"t": `, deep) + "{}" + strings.Repeat("}}", deep)
}

// A whole number may be written as programs that convert YAML write it.
func TestParse_WholeNumbers(t *testing.T) {
	opts, err := config.Parse([]byte(`{"allMethods": true, "maxHedges": 2.0, "maxMemory": 1e+08, "warmup": {"calls": 3E1, "delay": "0s"}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := hedgetest.New(t, opts...)
	for _, want := range []string{`"maxHedges": 2`, `"maxMemory": 100000000`, `"calls": 30`} {
		if !strings.Contains(string(config.Format(s)), want) {
			t.Errorf("%s has no %s", config.Format(s), want)
		}
	}
}

// A percentage is what it was after any number of rounds.
func TestFormat_KeepsPercentages(t *testing.T) {
	for n := range 501 {
		percent := float64(n) / 10
		s := hedgetest.All(t, hedge.WithControl(percent), hedge.WithBudgetPercent(percent))
		var got struct{ Control, BudgetPercent float64 }
		if err := json.Unmarshal(config.Format(s), &got); err != nil {
			t.Fatal(err)
		}
		if got.Control != percent || got.BudgetPercent != percent {
			t.Errorf("%v%% has become %+v", percent, got)
		}
	}
}

// Whatever the text, it is an error or makes options whose JSON makes them again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"methodOptions": {"/s/M": {"trigger": {"percentile": 0.5}}}}`))
	f.Add([]byte(`{"trigger": {"auto": {}}}`))
	f.Add([]byte(`{"allMethods": true, "control": 7, "warmup": {"calls": 1e1, "delay": "1us"}, "resetLimit": {"resets": 0, "per": "0s"}}`))
	f.Add([]byte(`{"allMethods": true, "serviceConfig": {"retryThrottling": {"maxTokens": 10, "tokenRatio": 1.0019}}, "targetOptions": {"*": {"off": false}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		opts, err := config.Parse(text)
		if err != nil {
			return
		}
		s, err := hedge.New(opts...)
		if err != nil {
			return
		}
		again, err := config.Parse(config.Format(s))
		if err != nil {
			t.Fatalf("%s: %v", config.Format(s), err)
		}
		second, err := hedge.New(again...)
		if err != nil {
			t.Fatalf("%s: %v", config.Format(s), err)
		}
		if diff := cmp.Diff(string(config.Format(s)), string(config.Format(second))); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
