// Package balancer is a gRPC load-balancing policy that sends hedges to a backend that no attempt of their call has used.
//
// If a backend stalls, for example in a garbage collection, it stalls a hedge as it stalls the primary. Import this package
// and wrap the connection's load-balancing policy, whichever it is:
//
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)),
//		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [
//			{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))
//
// A hedge then goes to a ready backend that no attempt of its call has used. If there is none, the child policy picks the
// backend, and the hedge counts in stats.Counts.SameBackend. For a primary the child picks, unless its pick is silent.
//
// # How a hedge's backend is chosen
//
// The child is asked up to 16 times, until it picks a backend that the call has not used. Picks that are not used are
// released with an empty [balancer.DoneInfo], as gRPC releases a pick whose connection is not ready. A least_request child
// then subtracts the request again. A weighted_round_robin child ignores it, because it learns only from load reports. A
// round_robin child moves on by one for each pick.
//
// A child such as ring_hash picks the same backend every time. After 16 such picks, another ready backend is chosen at random,
// and the child does not count that request. A backend is ready if its connection is up, and neither its health checks nor an
// outlier_detection above this policy exclude it. So outlier_detection should be the parent of this policy and not its child.
//
// If the child returns no pick, because the call has to wait or to fail, that also applies to a hedge.
//
// # Silence
//
// A backend may stand still: in a garbage collection, behind a full disk queue, as a frozen or lost machine. A connection is
// silent if two calls there are late and nothing has been answered there in between. A call is late when its first hedge is
// due, by the delay that the scheduler has learned for its method; a hedge is late when the next one is due. The two must be
// at least half of that delay apart. A stream has answered with its first message.
//
// Primaries that the child sends to a silent connection go elsewhere, also those of calls that are never hedged. Now and then
// one goes there as a probe: every 100 ms at first, later after a tenth of the time that the silence has lasted, at most 5 s.
// The first answer of any kind ends the silence. If more than half of the ready connections are silent, the network or the
// client is the reason, and primaries avoid none. Hedges always prefer connections that are not silent.
//
// Calls can be late only by a learned delay. So calls with Off, After, a hedgingPolicy or Fixed make nothing silent, nor do
// calls while a method is being learned.
//
// A late probe is hedged, and cancelled when its hedge wins. A backend that is only slower than the others would lose each
// time. So some probes are patient. The first one comes when the silence has lasted a second, the next ones each time that it
// has lasted four times as long, or a minute longer. Their hedges wait for twice the usual delay and a hundredth of the time
// that the silence has lasted, 500 ms at most; but for no longer than a quarter of the time until the deadline. If a patient
// probe is answered, the backend is slow. Later probes then wait for twice what it takes, and late calls mean nothing until
// fifty times that has passed.
//
// A ring_hash child loses its affinity for the calls that are moved. The field "silence": false turns all of it off.
//
// # Several connections
//
// With "connections": 2, or up to 8, each address gets that many connections: the child is run as many times, and each copy
// makes its own. Primaries use the first copy that has a ready connection, or with "spread": true all of them in turn. A hedge
// goes to another address if there is one, and else over a connection that its call has not used. If one address stands for
// several servers, as that of a Kubernetes service does, a hedge then usually meets another server. If it is one server, a
// hedge passes a connection that lost packets or is dead.
//
// If a connection is lost while another one is ready, it is made again at once. If all are idle, the next call makes all of
// them. For hedge.WithOtherBackendOnly and SameBackend, another connection counts as another backend.
//
// # What counts as the same backend
//
// Two backends are the same if they have the same address and server name, and with several connections the same one of
// them. Every backend that was picked for an attempt counts as used, also those of gRPC's own retries.
package balancer

import (
	"encoding/json"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/grpchedge/hedge/internal/place"
)

// Name is the name of the policy in a service config. Its configuration has one required field, childPolicy: a list of
// policies as in loadBalancingConfig, of which the first registered one becomes the child. Further fields are connections, 1
// to 8, default 1; spread, default false, which needs connections above 1; and silence, default true. If a later
// configuration has another child, that replaces the current child when it is ready, or when the current one no longer is.
const Name = "hedge_other_backend"

func init() { balancer.Register(builder{}) }

type builder struct{}

func (builder) Name() string { return Name }

func (builder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return parseConfig(js)
}

func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	// The target as the user wrote it, which is what a scheduler knows it by; that in opts is parsed.
	//lint:ignore SA1019 nothing else tells.
	target := cc.Target()
	return &policy{parent: cc, opts: opts, place: place.Enter(target)}
}
