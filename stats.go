package hedge

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/place"
)

// Stats counts what became of calls. All counts are since the scheduler was made; none ever falls.
type Stats struct {
	// Calls is the number of RPCs begun.
	Calls int64
	// Hedged is the number of RPCs for which at least one hedge was sent.
	Hedged int64
	// Hedges is the number of hedges sent.
	Hedges int64
	// HedgeWins and PrimaryWins are the hedged RPCs that ended with an answer, by the attempt that gave it. A
	// hedged RPC that failed, or whose caller gave up, is in neither.
	HedgeWins, PrimaryWins int64
	// SameBackend is the number of hedges for which a backend was picked that an attempt of their call had used,
	// because no other was ready. Only the policy of package balancer tells; without it the count is 0.
	SameBackend int64

	// The others say why a hedge was not sent. Those of calls are counted when a call begins, those of hedges
	// when one is due, once for each.

	// Warmup is the number of calls begun while their method was being learned.
	Warmup int64
	// BudgetExhausted is the number of hedges that the budget did not pay for when they were due. Such a hedge
	// is considered again later while its call lasts.
	BudgetExhausted int64
	// NotDrawn is the number of hedges that the trigger's probability left out, or all but a trickle of them while it has
	// stepped down.
	NotDrawn int64
	// NotReady is the number of hedges that found the connection not ready.
	NotReady int64
	// NoOtherBackend is the number of hedges for which WithOtherBackendOnly found no other backend ready, or had no
	// policy of package balancer to tell it of one. Such a hedge is considered again later while its call lasts.
	NoOtherBackend int64
	// DeadlineNear is the number of hedges that would probably have answered after the call's deadline.
	DeadlineNear int64
	// Paused is the number of calls begun while hedging was paused, and of hedges that came due then.
	Paused int64
	// Off is the number of calls with the option Off.
	Off int64
	// NotSelected is the number of calls of methods that WithMethods, WithIdempotentOnly or WithServiceConfigOnly
	// leaves out.
	NotSelected int64
	// NoDescriptor is the number of calls of methods that WithIdempotentOnly leaves out because no descriptor of
	// theirs is linked into the program. They are not in NotSelected.
	NoDescriptor int64
	// Throttled is the number of hedges not sent because half of the target's throttle tokens or more were gone. The
	// call gets no more of them.
	Throttled int64
	// PushedBack is the number of failed attempts whose server said, in the trailer grpc-retry-pushback-ms, when or
	// that not to try again.
	PushedBack int64
	// NotReplayable is the number of calls of which no second attempt can be made, because their reply cannot be
	// copied or, of a stream, because more than its first message was asked of it too early.
	NotReplayable int64
	// DryRun is the number of calls that would have been hedged without WithDryRun; they are not in Hedged. What would have
	// held a hedge back beside the budget is not looked at, and hedges that a failure would have sent are not counted.
	DryRun int64
	// PassedThrough is the number of client-streaming and bidirectional calls, which are never hedged. They are
	// not in Calls.
	PassedThrough int64

	// LoserPanics is the number of hedges that panicked after their call was decided, when no caller was left
	// to panic to.
	LoserPanics int64
}

// HedgeRate is Hedges / Calls, the extra load; 0 without calls.
func (s Stats) HedgeRate() float64 {
	if s.Calls == 0 {
		return 0
	}
	return float64(s.Hedges) / float64(s.Calls)
}

func (s *Stats) add(o Stats) {
	s.Calls += o.Calls
	s.Hedged += o.Hedged
	s.Hedges += o.Hedges
	s.HedgeWins += o.HedgeWins
	s.PrimaryWins += o.PrimaryWins
	s.Warmup += o.Warmup
	s.BudgetExhausted += o.BudgetExhausted
	s.NotDrawn += o.NotDrawn
	s.NotReady += o.NotReady
	s.NoOtherBackend += o.NoOtherBackend
	s.SameBackend += o.SameBackend
	s.DeadlineNear += o.DeadlineNear
	s.Paused += o.Paused
	s.Off += o.Off
	s.NotSelected += o.NotSelected
	s.NoDescriptor += o.NoDescriptor
	s.Throttled += o.Throttled
	s.PushedBack += o.PushedBack
	s.NotReplayable += o.NotReplayable
	s.DryRun += o.DryRun
	s.PassedThrough += o.PassedThrough
	s.LoserPanics += o.LoserPanics
}

// TargetStats is what is known of one method of one target.
type TargetStats struct {
	// Target is the connection's target, as grpc.ClientConn.Target returns it, and Method the full method name.
	// Either is Other where a cap was reached.
	Target, Method string
	Stats
	// Delay is the age at which a call gets its first hedge now; 0 while the method is being learned. Of a method with
	// a hedgingPolicy it is the hedgingDelay.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of what the primaries took over the window; 0 while nothing is known.
	P50, P90, P99 time.Duration
	// Choice is what the trigger Auto has in force; zero with another trigger, and while too little is known.
	Choice Choice
	// Forecasts are what hedging would do, with WithDryRun; nil without it, and while too little is known.
	Forecasts []Forecast
	// Classes is what is known of each class of requests, by name; nil without WithClass. Counts are of the method, and so is
	// what else is learned.
	Classes []ClassStats
	// Control compares calls that may be hedged with a control group; nil without WithControl.
	Control *Control
	// Tokens is the number of hedges that the target's budget would pay for now, and Burst the most that it can
	// save up at the current traffic. Both are the target's, shared by its methods.
	Tokens, Burst float64
	// Backends is the number of different backends that the target has ready now, as the policy of package balancer
	// sees them, over all connections of the process; 0 where it sees none or is not installed. See SingleBackend.
	Backends int
	// ThrottleTokens is the target's throttle count and ThrottleMax what it started from: hedges are sent while more
	// than half of it is left. Both are 0 without a throttle, and the target's as well.
	ThrottleTokens, ThrottleMax float64
}

// Other is the name under which methods, or targets, beyond a scheduler's caps share one entry.
const Other = "(other)"

// Stats returns the totals over all targets, those that have left included. In the copy the counts agree with
// each other: HedgeWins + PrimaryWins ≤ Hedged ≤ Hedges, and Hedged ≤ Calls.
func (s *Scheduler) Stats() Stats {
	var sum Stats
	if s == nil {
		return sum
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.add(s.departed)
	s.eachMethod(func(m *method) { sum.add(m.counters.read()) })
	return sum
}

// Targets returns what is known of each method of each target, sorted by target and method.
func (s *Scheduler) Targets() []TargetStats {
	if s == nil {
		return nil
	}
	now := time.Now()
	var methods []*method
	s.mu.Lock()
	s.eachMethod(func(m *method) { methods = append(methods, m) })
	s.mu.Unlock()

	rows := make([]TargetStats, 0, len(methods))
	for _, m := range methods {
		row := m.stats(&s.config, now)
		if s.config.dryRun {
			row.Forecasts = newForecasts(m.learner.Forecasts(now))
		}
		rows = append(rows, row)
	}
	backends := map[string]int{}
	for i := range rows {
		target := rows[i].Target
		if _, known := backends[target]; !known {
			backends[target] = place.Backends(target)
		}
		rows[i].Backends = backends[target]
	}
	slices.SortFunc(rows, func(a, b TargetStats) int {
		if c := strings.Compare(a.Target, b.Target); c != 0 {
			return c
		}
		return strings.Compare(a.Method, b.Method)
	})
	return rows
}

func (m *method) stats(c *config, now time.Time) TargetStats {
	row := TargetStats{
		Target: m.target.name,
		Method: m.name,
		Stats:  m.counters.read(),
		Tokens: m.target.budget.Tokens(now),
		Burst:  m.target.budget.Burst(now),
	}
	row.ThrottleTokens, row.ThrottleMax = m.target.throttle.read()
	if e := m.learner.Estimate(); e != nil {
		row.Delay, row.Choice = e.Delay, newChoice(e)
	}
	row.Classes = m.classes.stats(now)
	row.Control = m.groups.compare(now)
	if tail, ok := m.groups.tail(now, c.target); ok && row.Choice.UnhedgedTailFrom != "" {
		row.Choice.UnhedgedTail, row.Choice.UnhedgedTailFrom = tail, "the control group"
	}
	switch {
	case m.policy != nil:
		row.Delay = m.policy.delay
	case c.trigger.kind == fixedTrigger:
		row.Delay = c.trigger.delay
	}
	d := m.learner.Snapshot(now)
	row.P50, _ = d.Quantile(0.50)
	row.P90, _ = d.Quantile(0.90)
	row.P99, _ = d.Quantile(0.99)
	return row
}

// counters are the counts of one method. Those that every call touches are atomics; those of hedges change
// together, so they share a lock, which only a call that has become slow takes.
type counters struct {
	calls, warmup, paused, off, notSelected, notReplayable, passedThrough atomic.Int64
	sameBackend                                                           atomic.Int64 // of hedges, by the policy's picks
	noDescriptor                                                          atomic.Int64

	mu     sync.Mutex
	hedges Stats
}

// update changes the counts of hedges in one step.
func (c *counters) update(change func(*Stats)) {
	c.mu.Lock()
	change(&c.hedges)
	c.mu.Unlock()
}

// read returns one consistent copy. The counts of hedges are read before those of the calls that they belong
// to, which were counted earlier.
func (c *counters) read() Stats {
	sameBackend := c.sameBackend.Load() // of hedges that are counted as sent
	c.mu.Lock()
	s := c.hedges
	c.mu.Unlock()
	s.SameBackend = sameBackend
	s.Warmup += c.warmup.Load()
	s.Paused += c.paused.Load()
	s.Off += c.off.Load()
	s.NotSelected += c.notSelected.Load()
	s.NotReplayable += c.notReplayable.Load()
	s.NoDescriptor += c.noDescriptor.Load()
	s.PassedThrough += c.passedThrough.Load()
	s.Calls += c.calls.Load()
	return s
}
