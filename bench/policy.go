package main

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/stream"
)

// policy is a way to make calls.
type policy struct {
	name  string
	about string // in a few words
	// dial returns what makes connections follow the policy, and its scheduler if it has one. The options come
	// after the policy's own.
	dial func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error)

	// budget is how many hedges for 100 calls it promises not to exceed; 0 for no promise.
	budget float64
	// peer says that it is somebody else's: its wrong replies are counted and shown, and fail nothing here.
	peer bool
	// part says that it is no policy to compare, but what one is made of.
	part bool
}

const (
	none            = "none"
	adaptive        = "adaptive"
	contextAndTimer = "context and timer"
	failsafeCost    = "failsafe-go as it is"
)

// policies are all there are: a new one is one entry here, and -policy knows it.
var policies = []policy{
	{name: none, about: "plain gRPC", dial: plain},
	{name: "static-10ms", about: "one hedge after 10 ms, no budget", dial: static(10*time.Millisecond, 1)},
	{name: "static-50ms", about: "one hedge after 50 ms, no budget", dial: static(50*time.Millisecond, 1)},
	{name: "static-1s", about: "two hedges, each after a further 1 s, no budget: grpc-java's example", dial: static(time.Second, 2)},
	{name: adaptive, about: "this library, nothing configured: the trigger Auto, two hedges, budget 10%", dial: ours(), budget: 10},
	{name: "adaptive-1", about: "one hedge", dial: ours(hedge.WithMaxHedges(1)), budget: 10},
	{name: "adaptive-2", about: "two hedges, which is the default", dial: ours(hedge.WithMaxHedges(2)), budget: 10},
	{name: "adaptive-3", about: "three hedges", dial: ours(hedge.WithMaxHedges(3)), budget: 10},
	{name: "adaptive-5%", about: "budget 5%", dial: ours(hedge.WithBudgetPercent(5)), budget: 5},
	{name: "adaptive-15%", about: "budget 15%", dial: ours(hedge.WithBudgetPercent(15)), budget: 15},
	{name: "adaptive-30%", about: "budget 30%", dial: ours(hedge.WithBudgetPercent(30)), budget: 30},
	{name: "adaptive-3-20%", about: "three hedges, budget 20%", dial: ours(hedge.WithMaxHedges(3), hedge.WithBudgetPercent(20)), budget: 20},
	{name: "adaptive-3-30%", about: "three hedges, budget 30%", dial: ours(hedge.WithMaxHedges(3), hedge.WithBudgetPercent(30)), budget: 30},
	{name: "adaptive-p80", about: "this library with the trigger at p80", dial: ours(hedge.WithPercentile(0.80)), budget: 10},
	{name: "adaptive-p90", about: "at p90", dial: ours(hedge.WithPercentile(0.90)), budget: 10},
	{name: "adaptive-p95", about: "at p95", dial: ours(hedge.WithPercentile(0.95)), budget: 10},
	{name: "adaptive-p85-15%", about: "at p85, budget 15%", dial: ours(hedge.WithPercentile(0.85), hedge.WithBudgetPercent(15)), budget: 15},
	{name: "adaptive-p75-30%", about: "at p75, budget 30%", dial: ours(hedge.WithPercentile(0.75), hedge.WithBudgetPercent(30)), budget: 30},
	{name: "failsafe-go", about: "peer: quantile delay at p90, one hedge, budget 10%", dial: failsafe(1), peer: true},
	{name: "failsafe-go-2", about: "the same peer with two hedges", dial: failsafe(2), peer: true},
	{name: "headers-p90", about: "one hedge after the p90 of the time to response headers, at least 1 ms: the wrong signal", dial: headersCalibrated(0.90, time.Millisecond)},

	{name: contextAndTimer, dial: withUnary(insideContextAndTimer), part: true},
	{name: failsafeCost, dial: withUnary(failsafeInterceptor(1)), part: true, peer: true},
}

func policyNamed(name string) policy {
	i := slices.IndexFunc(policies, func(p policy) bool { return p.name == name })
	if i < 0 {
		panic("no policy " + name)
	}
	return policies[i]
}

// policyNames are the names of the policies that can be compared.
func policyNames() []string {
	var names []string
	for _, p := range policies {
		if !p.part {
			names = append(names, p.name)
		}
	}
	return names
}

func plain([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) { return nil, nil, nil }

// ours is this library with some options.
func ours(own ...hedge.Option) func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
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

// unbounded is a budget that pays for as many hedges as a call can have.
const unbounded = 400

// static hedges after a fixed delay, whatever it costs, as a hedging policy of gRPC's service config does.
func static(delay time.Duration, hedges int) func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
	return func(options []hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		dial, s, err := ours(hedge.WithMaxHedges(hedges), hedge.WithBudgetPercent(unbounded))(options)
		return append(dial, grpc.WithDefaultCallOptions(hedge.After(delay))), s, err
	}
}

func withUnary(i grpc.UnaryClientInterceptor) func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
	return func([]hedge.Option) ([]grpc.DialOption, *hedge.Scheduler, error) {
		return []grpc.DialOption{grpc.WithUnaryInterceptor(i)}, nil, nil
	}
}

// insideContextAndTimer does what no hedging can do without, and nothing else: the call gets a context that can
// be cancelled, and a timer runs beside it.
func insideContextAndTimer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Minute, cancel).Stop()
	return invoker(ctx, method, req, reply, cc, opts...)
}
