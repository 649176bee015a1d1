package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"
)

// config is a parsed configuration of the policy.
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

// MarshalJSON returns what was parsed: some parents, such as random_subsetting, hand configurations on as JSON.
func (c *config) MarshalJSON() ([]byte, error) { return c.js, nil }

// parseConfig reads {"childPolicy": [{"<name>": {…}}, …], "connections": 1, "spread": false, "silence": true}. The first
// registered policy of the list is the child.
func parseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	fields := struct {
		ChildPolicy []map[string]json.RawMessage
		Connections int
		Spread      bool
		Silence     bool
	}{Connections: 1, Silence: true}
	if err := json.Unmarshal(js, &fields); err != nil {
		return nil, fmt.Errorf("hedge: %s: %w", Name, err)
	}
	c, err := firstRegistered(fields.ChildPolicy)
	if err != nil {
		return nil, fmt.Errorf("hedge: %s: childPolicy: %w", Name, err)
	}
	c.connections, c.spread, c.silence, c.js = fields.Connections, fields.Spread, fields.Silence, slices.Clone(js)
	if c.connections < 1 || c.connections > maxConnections {
		return nil, fmt.Errorf("hedge: %s: connections: %d, allowed 1 to %d", Name, c.connections, maxConnections)
	}
	if c.spread && c.connections == 1 {
		return nil, fmt.Errorf("hedge: %s: spread: needs connections above 1", Name)
	}
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
			c := &config{builder: builder}
			if parser, ok := builder.(balancer.ConfigParser); ok {
				var err error
				if c.child, err = parser.ParseConfig(js); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("no policy of these is registered: %q", unknown)
}
