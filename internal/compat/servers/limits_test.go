package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

// policy is a server that counts resets, and what may become of a client that hedges.
type policy struct {
	name    string
	limit   testserver.Limit
	cuts    int  // whose calls in flight may fail
	few     bool // it allows fewer hedges than the workload needs
	options []hedge.Option
}

// none is a server that counts nothing.
var none = policy{name: "no limit"}

var policies = []policy{
	{"400 a minute", testserver.LimitLikeArmeria, 1, true, nil},
	{"25 a second, set", testserver.LimitLikeApache, 0, true, []hedge.Option{hedge.WithResetLimit(20, time.Second)}},
	{"1,000, graceful", testserver.LimitLikeNode, 0, false, nil},
}

// TestLimits_NoCallFails makes the calls of the workload straggler by virtual time against servers that end connections
// on which a client resets many streams. Hedging makes no call fail but those in flight at the first cut. Where the limit is
// set, it makes none fail; it must be set where 25 resets in a second end a connection without a reason. p99 is within 10% of
// what it is at a server that counts nothing, or of plain gRPC's where the limit allows few hedges: each of them resets a stream.
// There are at most three connections more than without hedging, which resets nothing and so has no limit to meet, and one for each
// 1,000 resets at the server that replaces a connection gracefully after so many.
func TestLimits_NoCallFails(t *testing.T) {
	loads := []Load{
		{Callers: 64, Rate: 5000},
		{Callers: 16, Rate: 500, Streams: true},
		{Callers: 16, Rate: 500},
		{Callers: 64, Rate: 500},
		{Callers: 64, Rate: 500, Streams: true},
		{Callers: 16, Rate: 5000},
		{Callers: 16, Rate: 5000, Streams: true},
		{Callers: 64, Rate: 5000, Streams: true},
	}
	for _, load := range longtest.First(2, loads) {
		load.Virtual = true
		load.For = time.Minute
		if !*longtest.Long {
			load.For = time.Duration(6000 / load.Rate * float64(time.Second)) // enough for two of the limits to be met
		}
		kind := "unary"
		if load.Streams {
			kind = "streams"
		}
		t.Run(fmt.Sprintf("%s, %d callers, %g a second", kind, load.Callers, load.Rate), func(t *testing.T) {
			plain := inBubble(t, load, none, plain)
			unlimited := inBubble(t, load, none, 0)
			t.Logf("%-16s %s", "not hedged", plain.line(unlimited))
			t.Logf("%-16s %s", none.name, unlimited.line(unlimited))
			for _, p := range policies {
				t.Run(p.name, func(t *testing.T) {
					hedged := inBubble(t, load, p, 0)
					t.Logf("%-16s %s", p.name, hedged.line(unlimited))
					if hedged.Failed > p.cuts*load.Callers {
						t.Errorf("%d of %d calls failed, may be those of %d cuts; the first: %v", hedged.Failed, hedged.Calls, p.cuts, hedged.First)
					}
					most := unlimited.P99() * 11 / 10
					if p.few {
						most = plain.P99() * 11 / 10
					}
					if hedged.P99() > most {
						t.Errorf("p99 is %v, may be %v", hedged.P99(), most)
					}
					connections := plain.Wire.Connections + 3
					if !p.few {
						connections += hedged.Wire.Resets / 1000
					}
					if hedged.Wire.Connections > connections {
						t.Errorf("%d connections, may be %d", hedged.Wire.Connections, connections)
					}
				})
			}
		})
	}
}

// TestLimits_RequestsAreNoPunishment lets a proxy end each connection gracefully after 1,000 requests: hedging does not stop,
// and resets are not held back for longer than a minute, which the long form, of three, shows.
func TestLimits_RequestsAreNoPunishment(t *testing.T) {
	load := Load{Callers: 16, Rate: 500, For: time.Duration(longtest.Size(12, 180)) * time.Second, Virtual: true}
	proxy := policy{limit: testserver.LimitThousandRequests}
	unlimited := inBubble(t, load, none, 0)
	without := inBubble(t, load, proxy, plain)
	hedged := inBubble(t, load, proxy, 0)
	t.Log("not hedged:", without.line(unlimited))
	t.Log("hedged:    ", hedged.line(unlimited))
	if without.Failed+hedged.Failed > 0 {
		t.Errorf("calls failed: %v, %v", without.First, hedged.First)
	}
	if *longtest.Long && float64(hedged.Wire.Resets) < 0.6*float64(unlimited.Wire.Resets) {
		t.Errorf("%d resets, without the proxy %d: they were held back for more than a minute of three", hedged.Wire.Resets, unlimited.Wire.Resets)
	}
	if most := unlimited.P99() * 11 / 10; hedged.P99() > most {
		t.Errorf("p99 is %v, may be %v", hedged.P99(), most)
	}
	// Hedges are requests too.
	if most := hedged.Wire.Requests/999 + 1; hedged.Wire.Connections > most || without.Wire.Connections < int64(without.Calls)/1000 {
		t.Errorf("%d connections for %d requests, may be %d; without hedging %d", hedged.Wire.Connections, hedged.Wire.Requests, most, without.Wire.Connections)
	}
}

// line is what became of a run, and of its p99 by that of a server without a limit.
func (r *Result) line(unlimited *Result) string {
	return fmt.Sprintf("%d of %d calls failed, p99 %.1f ms, %.2f of that without a limit, %d connections, %d resets, %d GOAWAYs",
		r.Failed, r.Calls, 1e3*r.P99().Seconds(), float64(r.P99())/float64(unlimited.P99()), r.Wire.Connections, r.Wire.Resets, r.Wire.GoAways)
}

// inBubble runs a load by virtual time.
func inBubble(t *testing.T, load Load, p policy, budget float64) (result *Result) {
	t.Helper()
	distribution := testserver.DistributionT(t, "straggler")
	var err error
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{
			InMemory: true, Latency: distribution, Seed: 1, DrawByID: true, CountsOnly: true, Limit: &p.limit,
		})
		load.Options = p.options
		result, err = load.Run(t.Context(), []string{cluster.Address(0)}, cluster.Dial, budget)
		cluster.WaitIdleT(t)
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
