// Package balancer is a gRPC load-balancing policy that sends hedges to a backend that no attempt of their call has used.
//
// If a backend stalls, it stalls a hedge as it stalls the primary. Import this package, as
// hedgebalancer beside gRPC's own package balancer, and wrap the connection's policy:
//
//	conn, err := grpc.NewClient(target, interceptor.DialOptions(s, creds, grpc.WithDefaultServiceConfig(
//		`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))...)
//
// A hedge then goes to a ready backend that no attempt of its call has used. If there is none, the child policy picks the
// backend, and the hedge counts in stats.Counts.SameBackend. For a primary the child picks.
//
// The child is asked up to 16 times, until it picks a backend that the call has not used. Picks that are not used are released with
// an empty [balancer.DoneInfo]. If the child always picks the same backend, as ring_hash does, another ready one is chosen at random,
// and the child does not count that request. If it returns no pick, the hedge has to wait or to fail too.
//
// Put an outlier_detection below this policy and not above it. It is then told of no error where an attempt was cancelled because
// another one was faster, and no backend is used that it does not pick.
//
// Two backends are the same if they have the same address and server name, and with several connections the same one of
// them. Those that gRPC's own retries pick count as used too.
//
// # Silence
//
// A connection is silent if two calls there are late, by the delay that the scheduler has learned for their methods, and nothing
// has been answered there in between. Then a share of its primaries goes elsewhere, as large as the other connections bear, also of
// calls that are never hedged. Now and then one goes there as a probe. The first answer ends the silence. If hedging is paused or
// switched off for a call, the child places it. The field "silence": false turns all of it off. docs/other-backends.md has the details.
//
// # Several connections
//
// With "connections": 2, or up to 8, the child is run as many times, and each copy makes connections of its own. Primaries use the
// first copy that is ready, or with "spread": true all in turn. A hedge goes to another address if there is one, and else over a
// connection that its call has not used, which counts as another backend. docs/other-backends.md says what it is for.
package balancer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/grpchedge/hedge/internal/place"
)

// Name is the name of the policy in a service config. Its configuration has one required field, childPolicy: a list of
// policies as in loadBalancingConfig. The first registered one becomes the child. Further fields are connections, 1
// to 8, default 1; spread, default false, which needs connections above 1; and silence, default true. If a later
// configuration has another child, that replaces the current child when it is ready, or when the current one no longer is.
const Name = "hedge_other_backend"

// ServiceConfig is the service config that puts the policy above round_robin, for grpc.WithDefaultServiceConfig.
const ServiceConfig = `{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`

func init() { balancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return Name }

func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	// The target as the user wrote it: a scheduler knows it by that. The target in opts is parsed.
	//lint:ignore SA1019 nothing else has it.
	target := cc.Target()
	return &policy{parent: cc, opts: opts, place: place.Enter(target)}
}

type config struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	ChildPolicy []map[string]json.RawMessage // the first registered policy is the child
	Connections int                          // to each address, 1 to maxConnections
	Spread      bool                         // primaries use all of them in turn
	Silence     bool                         // primaries avoid silent ones

	builder balancer.Builder
	child   serviceconfig.LoadBalancingConfig // nil if the child takes none
	js      json.RawMessage                   // as it was given
}

const maxConnections = 8

// MarshalJSON returns what was parsed: some parents, such as random_subsetting, hand configurations on as JSON.
func (c *config) MarshalJSON() ([]byte, error) { return c.js, nil }

// ParseConfig reads {"childPolicy": [{"<name>": {…}}, …], "connections": 1, "spread": false, "silence": true}.
func (builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &config{Connections: 1, Silence: true, js: slices.Clone(js)}
	if err := json.Unmarshal(js, c); err != nil {
		return nil, fmt.Errorf("hedge: %s: %w", Name, err)
	}
	if err := c.findChild(); err != nil {
		return nil, fmt.Errorf("hedge: %s: childPolicy: %w", Name, err)
	}
	if c.Connections < 1 || c.Connections > maxConnections {
		return nil, fmt.Errorf("hedge: %s: connections: %d, allowed 1 to %d", Name, c.Connections, maxConnections)
	}
	if c.Spread && c.Connections == 1 {
		return nil, fmt.Errorf("hedge: %s: spread: needs connections above 1", Name)
	}
	return c, nil
}

func (c *config) findChild() error {
	if len(c.ChildPolicy) == 0 {
		return errors.New("missing or empty; it lists the policy to wrap, such as [{\"round_robin\": {}}]")
	}
	var unknown []string
	for i, entry := range c.ChildPolicy {
		if len(entry) != 1 {
			return fmt.Errorf("entry %d has %d policies instead of one", i, len(entry))
		}
		for name, js := range entry {
			if c.builder = balancer.Get(name); c.builder == nil {
				unknown = append(unknown, name)
				continue
			}
			if parser, ok := c.builder.(balancer.ConfigParser); ok {
				var err error
				if c.child, err = parser.ParseConfig(js); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		}
	}
	return fmt.Errorf("no policy of these is registered: %q", unknown)
}
