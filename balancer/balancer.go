// Package balancer is a gRPC load-balancing policy that sends hedges to a backend that no attempt of their call has used.
//
// If a backend stalls, for example in a garbage collection, it stalls a hedge as it stalls the primary. Import this package and
// wrap the connection's load-balancing policy, whichever it is:
//
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)),
//		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [
//			{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))
//
// A hedge is then sent to a ready backend that no attempt of its call has used. If there is none, the child policy picks the
// backend, and the hedge counts in Stats.SameBackend. For a primary the child always picks.
//
// # How a hedge's backend is chosen
//
// The child is asked up to 16 times, until it picks a backend that the call has not used. Picks that are not used are released
// with an empty [balancer.DoneInfo], as gRPC releases a pick whose connection is not ready. A least_request child then
// subtracts the request again. A weighted_round_robin child ignores it, because it learns only from load reports. A
// round_robin child moves on by one for each pick.
//
// A child such as ring_hash picks the same backend every time. After 16 such picks, one of the other ready backends is chosen at
// random, and the child does not count that request. A backend is ready if its connection is up, and neither its health checks
// nor an outlier_detection above this policy exclude it. So an outlier_detection should be the parent of this policy and not
// its child, as xDS configures it.
//
// If the child returns no pick, because the call has to wait or to fail, that also applies to a hedge.
//
// # What counts as the same backend
//
// Two backends are the same if they have the same address and server name. Every backend that was picked for an attempt counts
// as used. If gRPC retries an attempt by itself, transparently or by a retryPolicy, that attempt has used several.
package balancer

import (
	"encoding/json"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/grpchedge/hedge/internal/place"
)

// Name is the name of the policy in a service config. Its configuration has one required field, childPolicy: a list of policies
// as in loadBalancingConfig. The first one that is registered becomes the child. If the list has none, the error names the
// field. If a later configuration has another child, that replaces the current child when it is ready, or when the current
// child is no longer ready.
const Name = "hedge_other_backend"

func init() { balancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return Name }

func (builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c, err := parseConfig(js)
	if err != nil {
		return nil, err // not c, which as an interface would not be nil
	}
	return c, nil
}

func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	// The target as the user wrote it, which is what a scheduler knows it by; that in opts is parsed.
	//lint:ignore SA1019 nothing else tells.
	target := cc.Target()
	return &policy{parent: cc, opts: opts, place: place.Enter(target)}
}
