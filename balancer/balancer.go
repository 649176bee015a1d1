// Package balancer has hedges go to another backend than the attempts before them.
//
// A backend that stalls, in a garbage collection say, stalls the hedge that meets it as it did the primary. Import
// this package and wrap the connection's load-balancing policy, whatever it is:
//
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)),
//		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [
//			{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))
//
// A hedge is then sent to a ready backend that no attempt of its call has used, as long as there is one. Otherwise
// it goes where the child sends it, and counts in hedge.Stats as SameBackend. A primary goes where the child sends
// it, always.
//
// # How a hedge's backend is chosen
//
// By the child, as far as possible: it is asked again, up to 16 times, until it picks a backend that is not used.
// Picks that are not taken are released with an empty [balancer.DoneInfo], as gRPC itself releases a pick whose
// connection turns out not to be ready: a least_request child counts the request out again, and a
// weighted_round_robin child, which learns from load reports alone, ignores it. A round robin moves on by one for
// each pick that is not taken.
//
// A child that picks the same backend every time, as ring_hash does, is then passed over: the hedge goes to one of
// the ready backends that are not used, at random, and the child does not count that request. Ready is a backend
// whose connection is up and which its health checks, or an outlier_detection above this policy, have not taken out.
// An outlier_detection should therefore be this policy's parent rather than its child; xDS has it so.
//
// A child that has no pick to give, because it wants the call to wait or to fail, is obeyed for hedges too.
//
// # What counts as the same backend
//
// Backends are told apart by address and server name, so that a backend that is listed twice is one. Every backend
// that was picked for an attempt counts as used, those included that gRPC went on from by itself, in a transparent
// retry or by a retryPolicy.
package balancer

import (
	"encoding/json"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/grpchedge/hedge/internal/place"
)

// Name is the name of the policy in a service config. Its configuration has one field, childPolicy, a list of
// policies as in loadBalancingConfig, of which the first that is registered is wrapped. A configuration without one
// is an error that names the field. A child of another name in a later configuration takes over as soon as it is
// ready, or the one before it no longer is.
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
