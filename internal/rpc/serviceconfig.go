package rpc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// MaxAttempts is the largest number of attempts of one call, the original included. As in gRPC, a
// higher number counts as MaxAttempts.
const MaxAttempts = 5

// MaxHedges is the largest number of hedges of one call.
const MaxHedges = MaxAttempts - 1

// ServiceConfig is the hedging part of a gRPC service config: the hedgingPolicy of each method and
// the retryThrottling, within gRPC's limits.
type ServiceConfig struct {
	// methods has the policy of each name: "/service/method", "/service/", or "" for all. A name
	// without a hedgingPolicy maps to nil, which hides less specific names.
	methods map[string]*HedgingPolicy

	Throttle *RetryThrottling // nil without a retryThrottling
}

// HedgingPolicy is the policy of a method.
type HedgingPolicy struct {
	Attempts int           // 2 to MaxAttempts, the original included
	Delay    time.Duration // 0: all attempts at once
	NonFatal []codes.Code  // sorted, without OK
}

// Policy returns the policy of a full method name, or nil. The most specific name wins: the method,
// then the service, then the empty name. A nil ServiceConfig has no policy.
func (c *ServiceConfig) Policy(fullMethod string) *HedgingPolicy {
	if c == nil {
		return nil
	}
	for _, name := range []string{fullMethod, fullMethod[:strings.LastIndexByte(fullMethod, '/')+1], ""} {
		if p, ok := c.methods[name]; ok {
			return p
		}
	}
	return nil
}

// The JSON. Package json ignores the case of keys. Unknown keys are ignored, and null means absent.
type (
	rawConfig struct {
		MethodConfig    []rawMethod  `json:"methodConfig"`
		RetryThrottling *rawThrottle `json:"retryThrottling"`
	}
	rawMethod struct {
		Name          []rawName
		RetryPolicy   *json.RawMessage
		HedgingPolicy *rawPolicy `json:"hedgingPolicy"`
	}
	rawName   struct{ Service, Method string }
	rawPolicy struct {
		MaxAttempts                       *float64 `json:"maxAttempts"`
		HedgingDelay, NonFatalStatusCodes *json.RawMessage
	}
	rawThrottle struct {
		MaxTokens  *float64 `json:"maxTokens"`
		TokenRatio *float64 `json:"tokenRatio"`
	}
)

// ParseServiceConfig reads a service config. An error names the method, the field and the value.
func ParseServiceConfig(js string) (*ServiceConfig, error) {
	var raw rawConfig
	err := json.Unmarshal([]byte(js), &raw)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // which names a type of this package
		err = fmt.Errorf("%s: must not be a JSON value of type %s", cmp.Or(wrong.Field, "the whole"), wrong.Value)
	}
	if err != nil {
		return nil, err
	}
	c := &ServiceConfig{methods: map[string]*HedgingPolicy{}}
	for i, m := range raw.MethodConfig {
		if err := c.add(m); err != nil {
			return nil, fmt.Errorf("methodConfig[%d] %v: %w", i, m.Name, err)
		}
	}
	if c.Throttle, err = parseThrottle(raw.RetryThrottling); err != nil {
		return nil, fmt.Errorf("retryThrottling: %w", err)
	}
	// gRPC checks the rest: retry policies, timeouts, load balancing.
	conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(js))
	if err != nil {
		return nil, err
	}
	return c, conn.Close() // a client without calls has not connected
}

func (c *ServiceConfig) add(m rawMethod) error {
	if m.HedgingPolicy != nil && m.RetryPolicy != nil {
		return errors.New("retryPolicy and hedgingPolicy: must not have both")
	}
	policy, err := parsePolicy(m.HedgingPolicy)
	if err != nil {
		return fmt.Errorf("hedgingPolicy.%w", err)
	}
	for _, n := range m.Name {
		if n.Service == "" && n.Method != "" {
			return fmt.Errorf("name: method %q: must have a service", n.Method)
		}
		if _, ok := c.methods[n.path()]; ok {
			return fmt.Errorf("name: %s: must not be given twice", n)
		}
		c.methods[n.path()] = policy
	}
	return nil
}

func (n rawName) String() string { return cmp.Or(strings.Trim(n.path(), "/"), "{}") }

func (n rawName) path() string {
	if n.Service == "" {
		return ""
	}
	return "/" + n.Service + "/" + n.Method
}

// parsePolicy returns nil without a policy. Its errors begin with the field's name.
func parsePolicy(raw *rawPolicy) (*HedgingPolicy, error) {
	if raw == nil {
		return nil, nil
	}
	delay, noDelay := duration(raw.HedgingDelay)
	nonFatal, noCodes := statusCodes(raw.NonFatalStatusCodes)
	switch attempts := raw.MaxAttempts; {
	case attempts == nil:
		return nil, errors.New("maxAttempts: required")
	case *attempts <= 1 || *attempts != math.Trunc(*attempts):
		return nil, fmt.Errorf("maxAttempts: %v: must be a whole number above 1", *attempts)
	case noDelay != nil:
		return nil, fmt.Errorf("hedgingDelay: %w", noDelay)
	case noCodes != nil:
		return nil, fmt.Errorf("nonFatalStatusCodes: %w", noCodes)
	}
	return &HedgingPolicy{int(min(*raw.MaxAttempts, MaxAttempts)), delay, nonFatal}, nil
}

// duration reads a proto3 JSON duration, such as "0.5s".
func duration(js *json.RawMessage) (time.Duration, error) {
	if js == nil {
		return 0, nil
	}
	var d durationpb.Duration
	if err := protojson.Unmarshal(*js, &d); err != nil {
		return 0, fmt.Errorf(`%s: must be a duration such as "0.5s"`, *js)
	}
	if d.AsDuration() < 0 {
		return 0, fmt.Errorf("%s: must not be negative", *js)
	}
	return d.AsDuration(), nil
}

// statusCodes reads status codes: numbers, or names in any case.
func statusCodes(js *json.RawMessage) (set []codes.Code, err error) {
	var list []json.RawMessage
	if js != nil && json.Unmarshal(*js, &list) != nil {
		return nil, fmt.Errorf("%s: must be a list", *js)
	}
	for _, item := range list {
		var code codes.Code
		if err := code.UnmarshalJSON(bytes.ToUpper(item)); err != nil || code == codes.OK {
			return nil, fmt.Errorf("%s: must be the code of an error", item)
		}
		set = append(set, code)
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

const maxTokens = 1000

// RetryThrottling is the retryThrottling of a service config, in thousandths as in gRPC.
type RetryThrottling struct {
	MilliTokens int64 // 1,000 to 1,000 maxTokens
	MilliRatio  int64 // 1 or more, and no more than refills the count at once
}

func parseThrottle(raw *rawThrottle) (*RetryThrottling, error) {
	if raw == nil {
		return nil, nil
	}
	switch tokens, ratio := raw.MaxTokens, raw.TokenRatio; {
	case tokens == nil:
		return nil, errors.New("maxTokens: required")
	case *tokens < 1 || *tokens > maxTokens || *tokens != math.Trunc(*tokens):
		return nil, fmt.Errorf("maxTokens: %v: must be a whole number from 1 to %d", *tokens, maxTokens)
	case ratio == nil:
		return nil, errors.New("tokenRatio: required")
	case *ratio < 0.001:
		return nil, fmt.Errorf("tokenRatio: %v: must be at least 0.001", *ratio)
	}
	const rounding = 1e-9 // 1000 × 0.029 is 28.999…
	milli := 1000*min(*raw.TokenRatio, *raw.MaxTokens) + rounding
	return &RetryThrottling{1000 * int64(*raw.MaxTokens), int64(milli)}, nil
}
