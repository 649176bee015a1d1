package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"
)

// config is a parsed configuration of the policy: the child, and its own configuration.
type config struct {
	serviceconfig.LoadBalancingConfig

	builder balancer.Builder
	child   serviceconfig.LoadBalancingConfig // nil if the child takes none
	js      json.RawMessage                   // as it was given
}

// MarshalJSON returns what was parsed: some parents, random_subsetting for one, hand their children's configurations
// on as JSON.
func (c *config) MarshalJSON() ([]byte, error) { return c.js, nil }

// parseConfig reads {"childPolicy": [{"<name>": {…}}, …]}, of whose list the first registered policy is the child.
func parseConfig(js json.RawMessage) (*config, error) {
	var fields struct {
		ChildPolicy []map[string]json.RawMessage `json:"childPolicy"`
	}
	if err := json.Unmarshal(js, &fields); err != nil {
		return nil, fmt.Errorf("hedge: %s: %w", Name, err)
	}
	c, err := firstRegistered(fields.ChildPolicy)
	if err != nil {
		return nil, fmt.Errorf("hedge: %s: childPolicy: %w", Name, err)
	}
	c.js = slices.Clone(js)
	return c, nil
}

func firstRegistered(list []map[string]json.RawMessage) (*config, error) {
	if len(list) == 0 {
		return nil, errors.New("missing or empty; it lists the policy to wrap, such as [{\"round_robin\": {}}]")
	}
	var unknown []string
	for i, entry := range list {
		if len(entry) != 1 {
			return nil, fmt.Errorf("entry %d has %d policies instead of one", i, len(entry))
		}
		for name, js := range entry {
			builder := balancer.Get(name)
			if builder == nil {
				unknown = append(unknown, name)
				continue
			}
			parser, ok := builder.(balancer.ConfigParser)
			if !ok {
				return &config{builder: builder}, nil
			}
			child, err := parser.ParseConfig(js)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return &config{builder: builder, child: child}, nil
		}
	}
	return nil, fmt.Errorf("no policy of these is registered: %q", unknown)
}
