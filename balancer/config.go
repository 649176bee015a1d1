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

	connections int  // to each address, 1 to maxConnections
	spread      bool // primaries use all of them in turn
	silence     bool // primaries avoid silent ones
}

// maxConnections bounds how many connections each address gets.
const maxConnections = 8

// MarshalJSON returns what was parsed: some parents, random_subsetting for one, hand their children's configurations
// on as JSON.
func (c *config) MarshalJSON() ([]byte, error) { return c.js, nil }

// parseConfig reads {"childPolicy": [{"<name>": {…}}, …], "connections": 1, "spread": false, "silence": true}. The first
// registered policy of the list is the child.
func parseConfig(js json.RawMessage) (*config, error) {
	var fields struct {
		ChildPolicy []map[string]json.RawMessage `json:"childPolicy"`
		Connections *int                         `json:"connections"`
		Spread      bool                         `json:"spread"`
		Silence     *bool                        `json:"silence"`
	}
	if err := json.Unmarshal(js, &fields); err != nil {
		return nil, fmt.Errorf("hedge: %s: %w", Name, err)
	}
	c, err := firstRegistered(fields.ChildPolicy)
	if err != nil {
		return nil, fmt.Errorf("hedge: %s: childPolicy: %w", Name, err)
	}
	c.connections, c.spread, c.silence = 1, fields.Spread, fields.Silence == nil || *fields.Silence
	if n := fields.Connections; n != nil {
		if *n < 1 || *n > maxConnections {
			return nil, fmt.Errorf("hedge: %s: connections: %d, allowed 1 to %d", Name, *n, maxConnections)
		}
		c.connections = *n
	}
	if c.spread && c.connections == 1 {
		return nil, fmt.Errorf("hedge: %s: spread: needs connections above 1", Name)
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
