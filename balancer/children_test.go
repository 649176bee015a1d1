package balancer_test

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
)

// Children for tests.
const (
	stubborn = `{"test_stubborn": {}}` // picks the same backend every time, as a hash of one key does
	shard    = `{"test_shard": {}}`    // picks the first two backends in turn
	firstOn  = `{"test_first_on": {}}` // picks all in turn, from the first on; round_robin begins at one chosen at random
	counting = `{"test_counting": {}}` // picks all in turn, each twice, so that a hedge's first pick meets the primary's
)

func init() {
	for name, p := range map[string]turns{"test_stubborn": {most: 1, each: 1}, "test_shard": {most: 2, each: 1},
		"test_first_on": {most: 100, each: 1}, "test_counting": {most: 100, each: 2}} {
		grpcbalancer.Register(base.NewBalancerBuilder(name, p, base.Config{}))
	}
}

// counts has the counts of these children. Tests that use it must not run in parallel.
var counts struct {
	picks, dones, unused atomic.Int64
	failed               atomic.Int64 // Dones with an error
	twice                atomic.Bool  // a Done was called twice
	briefly              atomic.Int64 // unused picks of the first backend whose Done came within 10 ms
}

// turns builds pickers of the first backends, by address, in turn.
type turns struct{ most, each int }

func (p turns) Build(info base.PickerBuildInfo) grpcbalancer.Picker {
	ready := slices.SortedFunc(maps.Keys(info.ReadySCs), func(a, b grpcbalancer.SubConn) int {
		return strings.Compare(info.ReadySCs[a].Address.Addr, info.ReadySCs[b].Address.Addr)
	})
	if len(ready) == 0 {
		return base.NewErrPicker(grpcbalancer.ErrNoSubConnAvailable)
	}
	ready = ready[:min(p.most, len(ready))]
	var next atomic.Int64
	return funcPicker(func() (grpcbalancer.PickResult, error) {
		counts.picks.Add(1)
		var called atomic.Bool
		n, began := int(next.Add(1)-1)/p.each%len(ready), time.Now()
		return grpcbalancer.PickResult{SubConn: ready[n],
			Done: func(info grpcbalancer.DoneInfo) {
				if called.Swap(true) {
					counts.twice.Store(true)
				}
				counts.dones.Add(1)
				if info.Err != nil {
					counts.failed.Add(1)
				}
				if info.Err == nil && !info.BytesSent && !info.BytesReceived && info.Trailer == nil &&
					info.ServerLoad == nil {
					counts.unused.Add(1)
					if n == 0 && time.Since(began) < 10*time.Millisecond {
						counts.briefly.Add(1)
					}
				}
			}}, nil
	})
}
