// Package balancer is a gRPC load-balancing policy that sends hedges to a backend that no attempt
// of their call has used.
//
// A stalled backend stalls a hedge as it stalls the primary. Import this package, as hedgebalancer
// alongside gRPC's own package balancer, and wrap the connection's policy:
//
//	conn, err := grpc.NewClient(target, interceptor.DialOptions(s, creds, grpc.WithDefaultServiceConfig(
//		`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))...)
//
// Every attempt goes to a connection that the child policy returns for it. For a hedge the child is
// asked up to 16 times, until it returns a connection that the call has not used. If it returns
// none, the hedge uses the child's first pick, and counts in stats.Counts.SameBackend. If the child
// returns an error, the hedge waits or fails as a primary does. Unused picks are released with an
// empty [balancer.DoneInfo].
//
// Put an outlier_detection below this policy, not above it: then it counts no error for an attempt
// that was canceled because another one won.
//
// Two backends are the same if they have the same address and server name and, with several
// connections to each address, the same connection number. Backends that gRPC's retries use count
// as used.
//
// A connection is silent after two late calls with no answer between them, until its next answer. A
// share of its primaries, unhedged calls included, then goes to other connections that the child
// returns. If hedging is paused or off for a call, the child alone places the call. The field
// "silence": false turns this off.
//
// With "connections": n, 2 to 8, the policy runs n copies of the child, each with its own
// connections. Primaries use the first copy that is ready. A hedge goes to another address if the child
// returns one, and otherwise over a connection that its call has not used, which counts as another
// backend.
//
// docs/other-backends.md has the details.
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

// Name is the name of the policy in a service config. Its configuration has one required field,
// childPolicy: a list of policies as in loadBalancingConfig. The first registered one becomes the
// child. The optional fields are connections (1 to 8, default 1) and silence (default true). A later
// configuration may name another child, which takes effect when it is ready, or when the current child
// no longer is.
const Name = "hedge_other_backend"

// ServiceConfig is the service config that puts the policy above round_robin, for
// grpc.WithDefaultServiceConfig.
const ServiceConfig = `{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`

func init() { balancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return Name }

func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	//lint:ignore SA1019 Nothing else has the target as the user wrote it: the one in opts is parsed.
	return &policy{parent: cc, opts: opts, place: place.Enter(cc.Target())}
}

type policyConfig struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	ChildPolicy []map[string]json.RawMessage // the first registered policy is the child
	Connections int                          // to each address, 1 to maxConnections
	Silence     bool                         // primaries avoid silent ones

	builder balancer.Builder
	child   serviceconfig.LoadBalancingConfig // nil if the child takes none
	js      json.RawMessage                   // the configuration as given
}

const maxConnections = 8

// MarshalJSON returns the JSON that was parsed, for parents such as random_subsetting.
func (c *policyConfig) MarshalJSON() ([]byte, error) { return c.js, nil }

func (builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &policyConfig{Connections: 1, Silence: true, js: slices.Clone(js)}
	if err := json.Unmarshal(js, c); err != nil {
		return nil, fmt.Errorf("hedge: %s: %w", Name, err)
	}
	if err := c.findChild(); err != nil {
		return nil, fmt.Errorf("hedge: %s: childPolicy: %w", Name, err)
	}
	if c.Connections < 1 || c.Connections > maxConnections {
		return nil, fmt.Errorf("hedge: %s: connections: %d: must be 1 to %d", Name, c.Connections, maxConnections)
	}
	return c, nil
}

func (c *policyConfig) findChild() error {
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
