// Package serviceconfig reads what a gRPC service config says about hedging: the hedgingPolicy of each method and
// the retryThrottling. It accepts the JSON that a team already gives to gRPC, ignores what gRPC ignores and rejects
// what gRPC rejects; what is accepted is within gRPC's limits.
package serviceconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// MaxAttempts is the most attempts of one call, the original included; gRPC takes a higher number for this one.
const MaxAttempts = 5

// Config is what a service config says about hedging.
type Config struct {
	// methods has the policy of each name: "/service/method", "/service/", or "" for all. A name without a
	// hedgingPolicy has nil there, and hides the less specific names all the same.
	methods map[string]*Policy

	Throttle *Throttle // nil without a retryThrottling
	JSON     string    // what it was parsed from
}

// Policy is a hedgingPolicy.
type Policy struct {
	Attempts int           // 2 to MaxAttempts, the original included
	Delay    time.Duration // 0: all attempts at once
	NonFatal []codes.Code  // sorted, without OK
}

// Policy returns the policy of a full method name, nil if it has none: that of the most specific name there is for
// it, a service and method, a service, or the empty name.
func (c *Config) Policy(fullMethod string) *Policy {
	for _, name := range []string{fullMethod, fullMethod[:strings.LastIndexByte(fullMethod, '/')+1], ""} {
		if p, ok := c.methods[name]; ok {
			return p
		}
	}
	return nil
}

// The JSON, down to where the errors are this package's own. Everything else in it is ignored here.
type (
	rawConfig struct {
		MethodConfig    []rawMethod     `json:"methodConfig"`
		RetryThrottling json.RawMessage `json:"retryThrottling"`
	}
	rawMethod struct {
		Name          []rawName       `json:"name"`
		RetryPolicy   json.RawMessage `json:"retryPolicy"`
		HedgingPolicy json.RawMessage `json:"hedgingPolicy"`
	}
	rawName struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}
	rawPolicy struct {
		MaxAttempts, HedgingDelay, NonFatalStatusCodes json.RawMessage
	}
)

// Parse reads a service config. An error names the method, the field and the value.
func Parse(js string) (*Config, error) {
	var raw rawConfig
	if err := json.Unmarshal([]byte(js), &raw); err != nil {
		return nil, plain(err)
	}
	c := &Config{methods: map[string]*Policy{}, JSON: js}
	for i, m := range raw.MethodConfig {
		if err := c.add(m); err != nil {
			return nil, fmt.Errorf("methodConfig[%d] (%s): %w", i, m.label(), err)
		}
	}
	if present(raw.RetryThrottling) {
		var err error
		if c.Throttle, err = parseThrottle(raw.RetryThrottling); err != nil {
			return nil, fmt.Errorf("retryThrottling: %w", err)
		}
	}
	if err := askGRPC(js); err != nil {
		return nil, err
	}
	return c, nil
}

// plain is an error of package json in words that name no type of this package.
func plain(err error) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("JSON: it is a %s, and not an object", wrong.Value)
		}
		return fmt.Errorf("%s: JSON: a %s is not allowed here", wrong.Field, wrong.Value)
	}
	return err
}

// askGRPC has gRPC look at the rest of the config: retry policies, timeouts, load balancing.
func askGRPC(js string) error {
	conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(js))
	if err != nil {
		return err
	}
	return conn.Close() // it has not connected: it would only do so for a call
}

func (c *Config) add(m rawMethod) error {
	var policy *Policy
	if present(m.HedgingPolicy) {
		if present(m.RetryPolicy) {
			return errors.New("it has a retryPolicy and a hedgingPolicy, and may have only one of them")
		}
		var err error
		if policy, err = parsePolicy(m.HedgingPolicy); err != nil {
			return fmt.Errorf("hedgingPolicy%w", err)
		}
	}
	for _, n := range m.Name {
		if n.Service == "" && n.Method != "" {
			return fmt.Errorf("name: the method %q is without a service", n.Method)
		}
		if _, ok := c.methods[n.path()]; ok {
			return fmt.Errorf("name: %s is there twice", n)
		}
		c.methods[n.path()] = policy
	}
	return nil
}

// label says which methods an entry is about.
func (m *rawMethod) label() string {
	if len(m.Name) == 0 {
		return "no name"
	}
	names := make([]string, len(m.Name))
	for i, n := range m.Name {
		names[i] = n.String()
	}
	return strings.Join(names, ", ")
}

func (n rawName) String() string {
	switch {
	case n.Service == "" && n.Method == "":
		return "{}"
	case n.Method == "":
		return n.Service
	}
	return n.Service + "/" + n.Method
}

func (n rawName) path() string {
	if n.Service == "" {
		return ""
	}
	return "/" + n.Service + "/" + n.Method
}

// parsePolicy returns errors that begin with the field's name after a dot, or with a colon.
func parsePolicy(js json.RawMessage) (*Policy, error) {
	var raw rawPolicy
	if err := json.Unmarshal(js, &raw); err != nil {
		return nil, fmt.Errorf(": %w", plain(err))
	}
	attempts, err := integer(raw.MaxAttempts)
	if err != nil {
		return nil, fmt.Errorf(".maxAttempts: %w", err)
	}
	if attempts <= 1 {
		return nil, fmt.Errorf(".maxAttempts: %d is not above 1", attempts)
	}
	p := &Policy{Attempts: int(min(attempts, MaxAttempts))}
	if present(raw.HedgingDelay) {
		if p.Delay, err = duration(raw.HedgingDelay); err != nil {
			return nil, fmt.Errorf(".hedgingDelay: %w", err)
		}
	}
	if present(raw.NonFatalStatusCodes) {
		if p.NonFatal, err = statusCodes(raw.NonFatalStatusCodes); err != nil {
			return nil, fmt.Errorf(".nonFatalStatusCodes: %w", err)
		}
	}
	return p, nil
}

// duration reads a proto3 JSON duration, such as "0.5s".
func duration(js json.RawMessage) (time.Duration, error) {
	var d durationpb.Duration
	if err := protojson.Unmarshal(js, &d); err != nil {
		return 0, fmt.Errorf(`%s is not a duration such as "0.5s"`, js)
	}
	if d.AsDuration() < 0 {
		return 0, fmt.Errorf("%s is negative", js)
	}
	return d.AsDuration(), nil
}

func statusCodes(js json.RawMessage) ([]codes.Code, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(js, &list); err != nil {
		return nil, fmt.Errorf("%s is not a list", js)
	}
	var set []codes.Code
	for _, item := range list {
		code, err := statusCode(item)
		if err != nil {
			return nil, err
		}
		set = append(set, code)
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

// statusCode reads a status code by its number, or by its name in any case.
func statusCode(js json.RawMessage) (codes.Code, error) {
	var code codes.Code
	var name string
	text := []byte(js)
	if json.Unmarshal(js, &name) == nil && name != "" {
		text = []byte(strconv.Quote(strings.ToUpper(name)))
	}
	if err := code.UnmarshalJSON(text); err != nil || code == codes.OK {
		return 0, fmt.Errorf("%s is not the code of an error", js)
	}
	return code, nil
}

// integer reads a required whole number, however it is written.
func integer(js json.RawMessage) (int64, error) {
	if !present(js) {
		return 0, errors.New("it is required")
	}
	if n, err := strconv.ParseInt(string(js), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(js), 64)
	if n := int64(f); err == nil && float64(n) == f {
		return n, nil
	}
	return 0, fmt.Errorf("%s is not an integer", js)
}

// present reports whether a field is there; null is as good as nothing.
func present(js json.RawMessage) bool { return len(js) > 0 && !bytes.Equal(js, []byte("null")) }
