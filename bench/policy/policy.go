// Package policy has the table of policies that are compared: no hedging, fixed delays, this
// library and a peer.
package policy

import (
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stream"
)

// Dial returns what makes connections follow a policy, and its scheduler if it has one. The options
// are applied after the policy's own.
type Dial func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error)

// Policy is a way to make calls.
type Policy struct {
	Name  string
	About string // in a few words
	Dial  Dial

	// To replaces Dial where hedges can go to a second destination; nil: Dial serves there too.
	To To
	// Transport is Dial for HTTP workloads; nil: requests are not hedged.
	Transport Transport
	HTTP2     bool // HTTP workloads use HTTP/2, without TLS

	// Budget is the number of hedges per 100 calls that the policy promises not to exceed; 0 for no
	// promise.
	Budget float64
	// Peer marks a policy of another library: its wrong replies are counted and shown, and do not
	// fail a run.
	Peer bool
	// Part marks a component that only cost measures, and that is not compared as a policy.
	Part bool
}

// Names of policies that other packages refer to.
const (
	None         = "none"
	Adaptive     = "adaptive"
	Peer         = "failsafe-go"
	Floor        = "floor"
	TrueFloor    = "true floor"
	FailsafeCost = "failsafe-go as it is"
)

// All has every policy. To add one, add an entry here: -policy and the report then know it.
var All = []Policy{
	{Name: None, About: "plain gRPC, or plain HTTP/1.1", Dial: plain},
	{Name: "static-10ms", About: "one hedge after 10 ms, no budget", Dial: Static(10*time.Millisecond, 1)},
	{Name: "static-50ms", About: "one hedge after 50 ms, no budget", Dial: Static(50*time.Millisecond, 1)},
	{Name: "static-200ms", About: "one hedge after 200 ms, no budget", Dial: Static(200*time.Millisecond, 1)},
	{Name: "static-1s", About: "two hedges, each after a further 1 s, no budget: grpc-java's example",
		Dial: Static(time.Second, 2)},
	{Name: Adaptive, About: "this library, nothing configured: the trigger Auto, two hedges, budget 10%",
		Dial: Ours(), Transport: OursHTTP(), Budget: 10},
	{Name: "adaptive-1", About: "one hedge", Dial: Ours(hedge.WithMaxHedges(1)), Budget: 10},
	{Name: "adaptive-2", About: "two hedges, which is the default", Dial: Ours(hedge.WithMaxHedges(2)), Budget: 10},
	{Name: "adaptive-3", About: "three hedges", Dial: Ours(hedge.WithMaxHedges(3)), Budget: 10},
	{Name: "adaptive-5%", About: "budget 5%", Dial: Ours(hedge.WithBudgetPercent(5)), Budget: 5},
	{Name: "adaptive-15%", About: "budget 15%", Dial: Ours(hedge.WithBudgetPercent(15)), Budget: 15},
	{Name: "adaptive-30%", About: "budget 30%", Dial: Ours(hedge.WithBudgetPercent(30)), Budget: 30},
	{Name: "adaptive-3-20%", About: "three hedges, budget 20%",
		Dial: Ours(hedge.WithMaxHedges(3), hedge.WithBudgetPercent(20)), Budget: 20},
	{Name: "adaptive-3-30%", About: "three hedges, budget 30%",
		Dial:      Ours(hedge.WithMaxHedges(3), hedge.WithBudgetPercent(30)),
		Transport: OursHTTP(hedge.WithMaxHedges(3), hedge.WithBudgetPercent(30)), Budget: 30},
	{Name: "adaptive-p80", About: "this library with the trigger at p80",
		Dial: Ours(hedge.WithTrigger(hedge.Percentile(0.80))), Budget: 10},
	{Name: "adaptive-p90", About: "at p90", Dial: Ours(hedge.WithTrigger(hedge.Percentile(0.90))), Budget: 10},
	{Name: "adaptive-p95", About: "at p95", Dial: Ours(hedge.WithTrigger(hedge.Percentile(0.95))), Budget: 10},
	{Name: "adaptive-p85-15%", About: "at p85, budget 15%",
		Dial: Ours(hedge.WithTrigger(hedge.Percentile(0.85)), hedge.WithBudgetPercent(15)), Budget: 15},
	{Name: "adaptive-p75-30%", About: "at p75, budget 30%",
		Dial: Ours(hedge.WithTrigger(hedge.Percentile(0.75)), hedge.WithBudgetPercent(30)), Budget: 30},
	{Name: Peer, About: "peer: quantile delay at p90, one hedge, budget 10%", Dial: failsafeDial(1), Peer: true},
	{Name: "failsafe-go-2", About: "the same peer with two hedges", Dial: failsafeDial(2), Peer: true},
	{Name: "headers-p90",
		About: "one hedge after the p90 of the time to response headers, at least 1 ms: the wrong signal",
		Dial:  headersCalibrated(0.90, time.Millisecond)},

	{Name: "retry", About: "no hedging; two retries of a call that fails with UNAVAILABLE",
		Dial: dialing(grpc.WithChainUnaryInterceptor(countAttempts, retry, numberAttempt))},
	{Name: "elsewhere",
		About: "this library: one hedge, for slow and failed calls, to the second destination; budget 100%",
		Dial:  Ours(), To: oursTo, Budget: 100},
	{Name: "failsafe-go-fallback",
		About: "peer: its hedges, two retries, and a fallback to the second destination",
		Dial:  failsafeDial(1), To: failsafeTo, Peer: true},

	{Name: "hedgedhttp-10ms", About: "peer: one hedge after 10 ms, no budget",
		Transport: hedgedHTTP(10 * time.Millisecond), Part: true, Peer: true},
	{Name: "hedgedhttp-50ms", About: "the same peer after 50 ms", Transport: hedgedHTTP(50 * time.Millisecond),
		Part: true, Peer: true},
	{Name: "none-h2", About: "plain HTTP/2", HTTP2: true, Part: true},
	{Name: "adaptive-h2", About: "this library over HTTP/2, nothing configured", Transport: OursHTTP(),
		Budget: 10, HTTP2: true, Part: true},
	{Name: "adaptive-3-30%-h2", About: "three hedges, budget 30%, over HTTP/2",
		Transport: OursHTTP(hedge.WithMaxHedges(3), hedge.WithBudgetPercent(30)), Budget: 30, HTTP2: true, Part: true},
	{Name: "hedgedhttp-10ms-h2", About: "the peer over HTTP/2", Transport: hedgedHTTP(10 * time.Millisecond),
		HTTP2: true, Part: true, Peer: true},
	{Name: "hedgedhttp-50ms-h2", About: "the same after 50 ms", Transport: hedgedHTTP(50 * time.Millisecond),
		HTTP2: true, Part: true, Peer: true},
	{Name: Floor, Dial: dialing(floor{delay: floorDelay}.dial()...), Part: true},
	{Name: TrueFloor, Dial: trueFloor, Part: true},
	{Name: FailsafeCost, Dial: dialing(grpc.WithUnaryInterceptor(failsafeInterceptor(1))), Part: true, Peer: true},
}

// Named returns the policy of that name. It panics if there is none.
func Named(name string) Policy {
	i := slices.IndexFunc(All, func(p Policy) bool { return p.Name == name })
	if i < 0 {
		panic("no policy " + name)
	}
	return All[i]
}

// Names are the names of the policies that can be compared.
func Names() []string {
	var names []string
	for _, p := range All {
		if !p.Part {
			names = append(names, p.Name)
		}
	}
	return names
}

func plain([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) { return nil, nil, nil }

// Ours is this library with the given options.
func Ours(own ...hedge.Option) Dial {
	return func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		s, err := hedge.New(slices.Concat([]hedge.Option{hedge.WithAllMethods()}, own, options)...)
		if err != nil {
			return nil, nil, err
		}
		return []grpc.DialOption{
			grpc.WithUnaryInterceptor(interceptor.Unary(s)),
			grpc.WithStreamInterceptor(stream.Interceptor(s)),
		}, s, nil
	}
}

// Unbounded is a budget, in percent, that pays for as many hedges as a call can have.
const Unbounded = 400

// Static hedges after a fixed delay without a budget, as the hedging policy of a gRPC service
// config does.
func Static(delay time.Duration, hedges int) Dial {
	return func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		dial, s, err := Ours(hedge.WithMaxHedges(hedges), hedge.WithBudgetPercent(Unbounded))(options)
		return append(dial, grpc.WithDefaultCallOptions(hedge.After(delay))), s, err
	}
}

// dialing has no scheduler and no options.
func dialing(dial ...grpc.DialOption) Dial {
	return func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) { return dial, nil, nil }
}
