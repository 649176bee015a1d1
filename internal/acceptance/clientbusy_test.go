package acceptance_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

// TestClientBusy has goroutines of the client wait for a processor while hedges are due, for a
// while or until the call's end. It also counts how often that is asked.
func TestClientBusy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		takes  time.Duration
		wait   time.Duration
		until  time.Duration // the age from which goroutines do not wait
		sent   time.Duration // the age at which the hedge is sent; 0: never
		asked  bool
		counts int64
	}{
		{"a call that needs no hedge", 9 * ms, time.Second, time.Hour, 0, false, 0},
		{"a sixteenth of the delay", 50 * ms, 10 * ms / 16, time.Hour, 10 * ms, true, 0},
		{"longer", 50 * ms, 10*ms/16 + 1, time.Hour, 11250 * time.Microsecond, true, 1},
		{"to the end", 50 * ms, 5 * ms, time.Hour, 0, true, 1},
		{"for a while", 50 * ms, 5 * ms, 12 * ms, 12656250 * time.Nanosecond, true, 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			began := time.Now()
			var asked atomic.Int64
			defer runqueue.Replace(func() time.Duration {
				if asked.Add(1); time.Since(began) >= tc.until {
					return 0
				}
				return tc.wait
			})()
			var sent time.Duration
			var reasons []stats.Reason
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithTrace(&hedge.Trace{
				HedgeSent:     func(e stats.HedgeSent) { sent = e.Age },
				HedgeHeldBack: func(e stats.HedgeHeldBack) { reasons = append(reasons, e.Reason) },
			}))
			hedgetest.Call(t, s, simulation.Target, simulation.Method, tc.takes)
			if got := s.Stats(); sent != tc.sent || got.ClientBusy != tc.counts || asked.Load() > 0 != tc.asked ||
				slices.Contains(reasons, stats.ClientBusy) != (tc.counts > 0) {
				t.Errorf("sent at %v, asked %d times, held back for %v; %+v", sent, asked.Load(), reasons, got)
			}
		})
	}
}

// TestRule13_ABusyClientTeachesNothing has the client be short of processor time for two minutes,
// while one call in ten is late for that reason. If these calls taught that they take long, delays
// would rise to the client's own delay. If they taught that a hedge might have been faster, Auto's
// would sink to a seventh.
func TestRule13_ABusyClientTeachesNothing(t *testing.T) {
	longtest.Simulation(t)
	draw := simulation.Drawing(testserver.DistributionT(t, "lognormal:5ms,2ms"), 1)
	const from, to = 20 * time.Second, 140 * time.Second
	for _, tc := range []struct {
		trigger   hedge.Trigger
		low, high float64 // the delay in the end, by that before
	}{{hedge.Auto(), .8, 2}, {hedge.Percentile(.9), .5, 1}} {
		var busy atomic.Bool
		restore := runqueue.Replace(func() time.Duration {
			if busy.Load() {
				return time.Second
			}
			return 0
		})
		var before, after time.Duration
		client := simulation.Client{Calls: 28_000, Rate: 200, Seed: 1, Options: []hedge.Option{hedge.WithTrigger(tc.trigger)},
			Latency: func(id uint64, attempt int, at time.Duration) time.Duration {
				d := draw(id, attempt, at)
				if at >= from && id%10 == 0 {
					d += 100 * ms
				}
				return d
			},
			Every: func(s *hedge.Scheduler, at time.Duration) {
				busy.Store(at >= from)
				for _, row := range s.Methods() {
					if after = row.Delay; at < from {
						before = row.Delay
					}
				}
			}}
		calls, rows := client.Run(t)
		restore()
		if hedges := calls.Between(from+time.Second, to).Hedges(); hedges > 0 || rows[0].ClientBusy == 0 {
			t.Errorf("%v: %d hedges while the client is busy; %d held back", tc.trigger, hedges, rows[0].ClientBusy)
		}
		if by := float64(after) / float64(before); by < tc.low || by > tc.high {
			t.Errorf("%v: the delay goes from %v to %v", tc.trigger, before, after)
		}
	}
}
