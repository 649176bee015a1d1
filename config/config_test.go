package config_test

import (
	"encoding/json"
	"fmt"
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
  "maxMethods": 1048576,
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

// Every error says where it is, and names the option or the field with its value.
func TestParse_Errors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "line 1:1",
		`{"maxHedges": 2`:                  "unexpected EOF",
		`{"maxHedges": 2,}`:                "line 1:17",
		`{"maxHedges": 2} {}`:              "line 1:18",
		`{"maxHedge": 2}`:                  `(line 1:2): unknown field "maxHedge"`,
		`{"": 2}`:                          `unknown field ""`,
		`{"maxHedges": 2, "maxHedges": 3}`: `duplicate field "maxHedges"`,
		`{"maxHedges": 7}`:                 "WithMaxHedges(7): the number of hedges must be 0 to 4",
		`{"maxHedges": "two"}`:             `invalid value for int32 field maxHedges: "two"`,
		`{"maxHedges": 1.5}`:               "maxHedges: 1.5",
		`{"maxMethods": 1e19}`:             "maxMethods: 1e19",
		`{"budgetPercent": 1e400}`:         "budgetPercent: 1e400",
		`{"budgetPercent": 1000}`:          "WithBudgetPercent(1000)",
		`{"minDelay": "1 fortnight"}`:      `minDelay: "1 fortnight" is not a duration such as "1.5s"`,
		`{"minDelay": 5}`:                  "minDelay: 5",
		`{"minDelay": "-1s"}`:              "WithMinDelay(-1s)",
		`{"dryRun": 1}`:                    "bool field dryRun: 1",
		`{"trigger": {}}`:                  "trigger: it needs one of",
		`{"trigger": {"fixed": "1s", "percentile": 0.5}}`:                           "(line 1:29)",
		`{"trigger": {"fixed": "soon"}}`:                                            `trigger.fixed: "soon" is not a duration`,
		`{"trigger": {"percentile": 90}}`:                                           "Percentile(90)",
		`{"trigger": {"Fixed": "1s"}}`:                                              `unknown field "Fixed"`,
		`{"trigger": {"auto": 1}}`:                                                  "(line 1:22)",
		`{"warmup": {"calls": 3}}`:                                                  `warmup.delay: "" is not a duration`,
		`{"resetLimit": {"per": "1m"}}`:                                             "WithResetLimit(0, 1m0s)",
		`{"methods": "/s/M"}`:                                                       "(line 1:13)",
		`{"methods": [null]}`:                                                       "methods: null",
		`{"methods": ["Get"]}`:                                                      `WithMethods("Get")`,
		`{"serviceConfig": 3}`:                                                      "(line 1:19)",
		`{"serviceConfig": {"methodConfig": 3}}`:                                    "WithServiceConfig: methodConfig: JSON: a number is not allowed here",
		`{"nonFatalCodes": ["UNAVAILABEL"]}`:                                        `nonFatalCodes: "UNAVAILABEL" is not a status`,
		`{"nonFatalCodes": [null]}`:                                                 "WithNonFatalCodes(OK)",
		`{"nonFatalCodes": ["OK"]}`:                                                 "WithNonFatalCodes(OK)",
		`{"methodOptions": {"": {}}}`:                                               `WithMethodOptions("")`,
		`{"methodOptions": {"/s/M": null}}`:                                         "(line 1:28)",
		`{"methodOptions": {"/s/M": {}, "/s/M": {}}}`:                               `duplicate map key "/s/M"`,
		`{"methodOptions": {"/s/M": {"allMethods": true}}}`:                         `WithMethodOptions("/s/M"): WithAllMethods cannot be set for a method`,
		`{"methodOptions": {"/s/M": {"methodOptions": {}}}}`:                        "",
		`{"methodOptions": {"/s/M": {"methodOptions": {"/s/M": {}}}}}`:              `WithMethodOptions cannot be set for a method`,
		`{"methodOptions": {"/s/M": {"window": "1s"}}}`:                             "WithWindow cannot be set for a method",
		`{"methodOptions": {"/s/M": {"minDelay": ""}}}`:                             `methodOptions["/s/M"]: minDelay: ""`,
		`{"targetOptions": {"": {}}}`:                                               "must not be empty",
		`{"targetOptions": {"t": {"methodOptions": {"/s/M": {"maxHedges": 9}}}}}`:   `WithTargetOptions("t"): WithMethodOptions("/s/M"): WithMaxHedges(9)`,
		`{"targetOptions": {"t": {"methodOptions": {"/s/M": {"warmup": {}}}}}}`:     `targetOptions["t"]: methodOptions["/s/M"]: warmup.delay`,
		`{"serviceConfig": {"retryThrottling": {"maxTokens": 0, "tokenRatio": 1}}}`: "maxTokens: 0 is not in (0, 1000]",
		nested(4000):                "WithTargetOptions cannot be set for a target",
		strings.Repeat("[", 20_000): "line 1:1",
	} {
		_, err := config.Parse([]byte(text))
		got := strings.ReplaceAll(fmt.Sprint(err), "\u00a0", " ") // protobuf writes either space
		if !strings.Contains(got, want) || want != "" && !strings.HasPrefix(got, "hedge: config: ") {
			t.Errorf("%.200s: error %.400q has no %q", text, got, want)
		}
	}
}

// nested is a text in which rules for targets contain each other. What is not allowed is found before what it contains is read.
func nested(deep int) string {
	return strings.Repeat(`{"targetOptions": {"t": `, deep) + "{}" + strings.Repeat("}}", deep)
}

// A whole number may be written as programs that convert YAML write it.
func TestParse_WholeNumbers(t *testing.T) {
	opts, err := config.Parse([]byte(`{"allMethods": true, "maxHedges": 2.0, "maxMethods": 1e+08, "warmup": {"calls": 3E1, "delay": "0s"}}`))
	if err != nil {
		t.Fatal(err)
	}
	s := hedgetest.New(t, opts...)
	for _, want := range []string{`"maxHedges": 2`, `"maxMethods": 100000000`, `"calls": 30`} {
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
