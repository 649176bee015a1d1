package otel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/grpchedge/hedge"
	hedgeotel "github.com/grpchedge/hedge/otel"
	"github.com/grpchedge/hedge/stats"
)

// counted is a scheduler and what is read of its counters.
type counted struct {
	*hedge.Scheduler
	reader *metric.ManualReader
	last   map[string]map[attribute.Distinct]int64 // by instrument
}

func newCounted(t *testing.T, most int, options ...hedge.Option) *counted {
	t.Helper()
	c := &counted{reader: metric.NewManualReader(), last: map[string]map[attribute.Distinct]int64{}}
	meters := metric.NewMeterProvider(metric.WithReader(c.reader))
	t.Cleanup(func() { _ = meters.Shutdown(context.Background()) })
	telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: meters, MaxMethods: most})
	if err != nil {
		t.Fatal(err)
	}
	if c.Scheduler, err = hedge.New(append(options, hedge.WithTrigger(hedge.Fixed(ms)), telemetry)...); err != nil {
		t.Fatal(err)
	}
	return c
}

// calls makes n calls of a method, each of which takes d.
func (c *counted) calls(t *testing.T, method string, n int, d time.Duration) {
	t.Helper()
	for range n {
		_, err := hedge.Do(t.Context(), c.Scheduler, "shop:443", method, func(context.Context) (int, error) {
			if d > 0 {
				time.Sleep(d)
			}
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read reads all counters. It returns the sum of each, and fails if a series has fallen or has gone.
func (c *counted) read(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := c.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			counter, ok := m.Data.(metricdata.Sum[int64])
			if !ok {
				continue
			}
			now := map[attribute.Distinct]int64{}
			for _, p := range counter.DataPoints {
				key := p.Attributes.Equivalent()
				now[key] = p.Value
				sums[m.Name] += p.Value
				if was := c.last[m.Name][key]; p.Value < was {
					t.Errorf("%s %v fell from %d to %d", m.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), was, p.Value)
				}
			}
			for key := range c.last[m.Name] {
				if _, ok := now[key]; !ok {
					t.Errorf("a series of %s has gone", m.Name)
				}
			}
			c.last[m.Name] = now
		}
	}
	return sums
}

// decisions is what the counter of decisions adds up to.
func decisions(s stats.Counts) int64 {
	return s.HedgeWins + s.PrimaryWins + s.BudgetExhausted + s.NotDrawn + s.NotReady + s.NoOtherBackend + s.DeadlineNear +
		s.Throttled + s.PushedBack + s.Guarded + s.ResetsSpent + s.OfHedges + s.Paused + s.Warmup + s.Off + s.NotSelected +
		s.NoDescriptor + s.NotReplayable + s.EarlyHeaders + s.DryRun
}

// Of two methods that are not told apart the busy one is forgotten. The counters keep its calls.
func TestCounters_NeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounted(t, 1, hedge.WithAllMethods())
		c.calls(t, "/shop.Items/Named", 1, 0)
		c.read(t)
		c.calls(t, "/shop.Items/Busy", 1000, 0)
		if got := c.read(t)["grpc.client.hedge.calls"]; got != 1001 {
			t.Errorf("%d calls, want 1001", got)
		}
		for range 40 {
			time.Sleep(time.Minute)
			c.calls(t, "/shop.Items/Seldom", 1, 0)
			c.read(t)
		}
		if rows := c.Targets(); len(rows) != 1 {
			t.Fatalf("%d methods are remembered, want 1", len(rows))
		}
		c.calls(t, "/shop.Items/Named", 1, 0) // comes back
		if got := c.read(t)["grpc.client.hedge.calls"]; got != 1042 {
			t.Errorf("%d calls, want 1042", got)
		}
	})
}

// Methods come, are forgotten and come again, for lack of calls or of room. Each counter is what the scheduler has counted.
func TestCounters_MethodsThatComeAndGo(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 15))
			c := newCounted(t, r.IntN(10)+1, hedge.WithAllMethods(), hedge.WithBudgetPercent(400), hedge.WithMaxMethods(200))
			for range 100 {
				for range r.IntN(40) {
					c.calls(t, fmt.Sprintf("/shop.Items/Get%d", int(r.ExpFloat64()*50)), 1+r.IntN(3), time.Duration(r.IntN(2))*3*ms)
				}
				if r.IntN(3) == 0 {
					c.read(t)
				}
				time.Sleep(time.Duration(r.ExpFloat64() * float64(3*time.Minute)))
			}
			time.Sleep(time.Second) // the losers end
			sums, stats := c.read(t), c.Stats()
			if sums["grpc.client.hedge.calls"] != stats.Calls || sums["grpc.client.hedge.decisions"] != decisions(stats) {
				t.Errorf("seed %d: %d calls, %d decisions, want %d, %d", seed, sums["grpc.client.hedge.calls"],
					sums["grpc.client.hedge.decisions"], stats.Calls, decisions(stats))
			}
		})
	}
}
