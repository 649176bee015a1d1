package trigger_test

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/trigger"
)

// client simulates a client with the latencies of a distribution and a virtual clock. It processes
// one event at a time, without a scheduler, goroutines or timers: ten times faster than
// internal/testserver/simulation. It sends hedges by the rules of call.Call.Admit.
type client struct {
	distribution attemptDistribution
	calls        int
	concurrency  int     // callers, each with sequential calls; 0: at the rate
	rate         float64 // mean calls per second
	gathered     int     // calls in each burst, one burst per every; 0: at the rate
	every        time.Duration
	seed         uint64
	config       *trigger.Config
	known        []*trigger.Estimate       // by method, fixed from the first call on; none: learned
	restored     sketch.Counts             // restored from another client, with the rate
	deadline     time.Duration             // of each call; 0: none
	servers      servers                   // queue attempts and serve each for its drawn latency; none: no waiting
	clients      int                       // that share the calls, each with its own budget and learners; 0 is 1
	methods      int                       // of the target; 0 is 1
	method       func(seed, id uint64) int // of a call
}

// servers is count servers with the given number of workers each. They may stop canceled work that
// a worker has begun.
type servers struct {
	count, workers int
	stop           bool
}

// attemptDistribution returns the latency of an attempt sent at a time. Attempt 0 is the primary.
type attemptDistribution func(seed, id uint64, attempt int, at time.Duration) time.Duration

// outcome is one call that has ended.
type outcome struct {
	at, took time.Duration
	hedges   int
	method   int
}

type event struct {
	at   time.Duration
	kind uint8
	call *simCall
	n    int // of the attempt
}

const (
	arrives uint8 = iota
	due
	expires
	ends
)

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].kind > e[j].kind
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

type simCall struct {
	id       uint64
	start    time.Duration
	method   int
	learner  *trigger.Learner
	budget   *budget.Bucket
	estimate *trigger.Estimate
	delay    time.Duration
	turn     int
	drawn    bool
	sent     []time.Duration // when each hedge was sent
	over     bool
	served   [8]bool // whether a worker serves the attempt
}

type simulator struct {
	client
	learner  *trigger.Learner  // the first of learners
	learners []trigger.Learner // by client, then method
	budgets  []*budget.Bucket  // of each client
	queue    events
	now      time.Duration
	epoch    time.Time
	done     []outcome
	next     uint64
	random   *rand.Rand
	begun    uint64
	hedges   int       // sent
	busy     []int     // workers of each server
	waiting  [][]event // for a worker of each server
}

// policy is the trigger Auto, or one to compare with, with the same budget: no hedging, a percentile
// of the latency, or a fixed delay as a multiple of the method's median.
type policy struct {
	name              string
	quantile, medians float64
}

var (
	auto, never = policy{}, policy{name: "plain", quantile: 1}
	p90, p95    = policy{name: "p90", quantile: .90}, policy{name: "p95", quantile: .95}

	simpler = []policy{never, p90, p95, {"3 medians", 0, 3}, {"5 medians", 0, 5}, {"10 medians", 0, 10}}
)

// under returns the client with a policy, given the median of each method in ms.
func (sim client) under(p policy, medians ...float64) client {
	c := *sim.config
	c.Auto = p == auto
	switch {
	case p.medians > 0:
		for _, m := range medians {
			plan := trigger.HedgePlan{Delay: max(inMillis(p.medians*m), ms), Probability: 1, Hedges: c.MaxHedges}
			sim.known = append(sim.known, &trigger.Estimate{HedgePlan: plan})
		}
	case p == never:
		c.MaxHedges = 0
	case p != auto:
		c.Quantile = p.quantile
	}
	sim.config = &c
	return sim
}

// comparison is the measures of plain calls, of the best simpler policy, chosen per measure, and of
// the trigger, for one or more groups of calls. names has the best policies of the first group.
type comparison struct {
	plain, best, auto [][5]float64
	names             [5]policy
	load              float64
}

func compare(measured func(p policy) (groups [][5]float64, load float64)) (c comparison) {
	c.plain, _ = measured(never)
	c.best, c.names = slices.Clone(c.plain), [5]policy{never, never, never, never, never}
	for _, p := range simpler[1:] {
		groups, _ := measured(p)
		for k := range groups {
			for i, x := range groups[k] {
				if k == 0 && x < c.best[0][i] {
					c.names[i] = p
				}
				c.best[k][i] = min(x, c.best[k][i])
			}
		}
	}
	c.auto, c.load = measured(auto)
	return c
}

// judged returns the calls that began while faulty, without the first tenth of all calls, and their
// sorted latencies in ms.
func (s *simulator) judged(faulty func(time.Duration) bool) (done []outcome, took []float64) {
	done = s.done[len(s.done)/10:]
	done = slices.DeleteFunc(done, func(o outcome) bool { return faulty != nil && !faulty(o.at) })
	for _, o := range done {
		took = append(took, float64(o.took)/float64(ms))
	}
	slices.Sort(took)
	return done, took
}

func (sim client) run() *simulator {
	s := &simulator{
		client: sim,
		epoch:  time.Unix(1e9, 0),
		done:   make([]outcome, sim.calls),
		random: simulation.Generator(sim.seed, 7, 7),
	}
	s.methods, s.clients = max(s.methods, 1), max(s.clients, 1)
	s.busy, s.waiting = make([]int, s.servers.count), make([][]event, s.servers.count)
	s.learners = make([]trigger.Learner, s.clients*s.methods)
	s.learner = &s.learners[0]
	for n := range s.clients {
		b := budget.New(s.config.BudgetPercent)
		s.budgets = append(s.budgets, b)
		for m := range s.methods {
			l := &s.learners[n*s.methods+m]
			l.Start(s.config, trigger.Owner{Budget: b, Epoch: s.epoch})
			l.Run(func(choose func()) { choose() })
			l.Restore(s.restored)
		}
		if len(s.restored) > 0 {
			b.Expect(s.epoch, s.rate)
		}
	}
	for range max(s.concurrency, 1) {
		s.arrive(0)
	}
	for len(s.queue) > 0 {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		switch e.kind {
		case arrives:
			s.begin()
		case due:
			if !e.call.over {
				s.due(e.call)
			}
		case expires:
			if !e.call.over {
				s.ended(e.call, -1)
			}
		case ends:
			s.release(e.call, e.n)
			if !e.call.over {
				s.ended(e.call, e.n)
			}
		}
	}
	return s
}

func (s *simulator) time() time.Time { return s.epoch.Add(s.now) }

func (s *simulator) arrive(at time.Duration) {
	if s.next < uint64(s.calls) {
		heap.Push(&s.queue, event{at: at, kind: arrives})
		s.next++
	}
}

func (s *simulator) begin() {
	id := s.begun
	s.begun++
	switch {
	case s.gathered > 0 && s.begun%uint64(s.gathered) == 0:
		s.arrive(time.Duration(s.begun/uint64(s.gathered)) * s.every)
	case s.gathered > 0:
		s.arrive(s.now + time.Microsecond)
	case s.concurrency == 0:
		s.arrive(s.now + time.Duration(s.random.ExpFloat64()/s.rate*1e9))
	}
	c := &simCall{id: id, start: s.now}
	if s.method != nil {
		c.method = s.method(s.seed, id)
	}
	client := 0
	if s.clients > 1 {
		client = simulation.Generator(s.seed, id, -3).IntN(s.clients)
	}
	c.learner, c.budget = &s.learners[client*s.methods+c.method], s.budgets[client]
	switch {
	case s.known != nil:
		c.estimate = s.known[c.method]
	default:
		if c.estimate = c.learner.EstimateFor(s.time()); c.estimate == nil {
			c.estimate = c.learner.First(s.time())
		}
	}
	if c.estimate != nil {
		c.delay = c.estimate.Delay
	}
	c.budget.Earn(s.time(), 1, c.delay)
	if e := c.estimate; e != nil {
		if s.config.MaxHedges > 0 {
			heap.Push(&s.queue, event{at: s.now + e.Delay, kind: due, call: c})
		}
	}
	if s.deadline > 0 {
		heap.Push(&s.queue, event{at: s.now + s.deadline, kind: expires, call: c})
	}
	s.send(c, 0)
}

// send sends an attempt. If there are servers, the attempt may wait for a worker.
func (s *simulator) send(c *simCall, n int) {
	e := event{kind: ends, call: c, n: n}
	if s.servers.count > 0 {
		at := s.serverOf(c, n)
		if s.busy[at] == s.servers.workers {
			s.waiting[at] = append(s.waiting[at], e)
			return
		}
		s.busy[at]++
		c.served[n] = true
	}
	e.at = s.now + s.distribution(s.seed, c.id, n, s.now)
	heap.Push(&s.queue, e)
}

func (s *simulator) serverOf(c *simCall, n int) int { return backend(s.seed, c.id, n, s.servers.count) }

// release hands the worker of an attempt to the next waiting attempt.
func (s *simulator) release(c *simCall, n int) {
	if !c.served[n] {
		return
	}
	c.served[n] = false
	at := s.serverOf(c, n)
	s.busy[at]--
	for len(s.waiting[at]) > 0 {
		next := s.waiting[at][0]
		s.waiting[at] = s.waiting[at][1:]
		if !next.call.over {
			s.send(next.call, next.n)
			return
		}
	}
}

// due mirrors call.Call.Admit.
func (s *simulator) due(c *simCall) {
	e, age := c.estimate, s.now-c.start
	again := func(after time.Duration) {
		heap.Push(&s.queue, event{at: s.now + max(after, 250*time.Microsecond), kind: due, call: c})
	}
	if newest := c.learner.Estimate(); c.turn == 0 && newest != e && s.known == nil && newest.Delay > c.delay {
		if c.delay = newest.Delay; age < c.delay {
			again(c.delay - age)
			return
		}
	}
	if !c.drawn {
		if c.turn >= e.Hedges {
			return
		}
		c.turn++
		c.drawn = e.Probability >= 1 || c.learner.Draw(e.Probability)
		if !c.drawn {
			again(c.delay)
			return
		}
	}
	keep := 0.0
	if len(c.sent) == 0 && s.config.Auto && s.known == nil {
		keep = min(max(2-float64(age)/float64(c.delay), 0), 1)
	}
	if paid, _ := c.budget.Pay(s.time(), keep, 1); !paid {
		switch {
		case age < 2*c.delay:
			again(min(age/8, 2*c.delay-age))
		case age < 3*c.delay:
			again(3*c.delay - age)
		default:
			again(age)
		}
		return
	}
	c.drawn = false
	c.sent = append(c.sent, s.now)
	s.hedges++
	n := len(c.sent)
	s.send(c, n)
	again(c.delay)
}

// ended ends a call with the answer of an attempt, or, if n is -1, at its deadline.
func (s *simulator) ended(c *simCall, n int) {
	c.over = true
	for k := 0; k <= len(c.sent) && s.servers.stop; k++ {
		s.release(c, k)
	}
	s.done[c.id] = outcome{c.start, s.now - c.start, len(c.sent), c.method}
	for k, at := range append([]time.Duration{c.start}, c.sent...) {
		s.learn(c, k, s.now-at, k == n)
	}
	if len(c.sent) > 0 {
		c.budget.Hedged(n > 0)
		c.learner.HedgedCall(c.sent[0]-c.start, s.now-c.sent[0], c.estimate.Hedges)
	}
	if s.concurrency > 0 {
		s.arrive(s.now)
	}
}

// learn records the latency of an attempt, or the age at which it was cut short.
func (s *simulator) learn(c *simCall, n int, took time.Duration, answered bool) {
	if n == 0 {
		c.learner.PrimaryEnded(s.time(), took, answered)
	} else {
		c.learner.HedgeEnded(s.time(), took, answered)
	}
}

func tail(calls []outcome, q float64) float64 {
	took := make([]time.Duration, len(calls))
	for i, c := range calls {
		took[i] = c.took
	}
	slices.Sort(took)
	return float64(took[min(int(q*float64(len(took))), len(took)-1)]) / float64(ms)
}

// load returns the extra attempts per 100 calls.
func load(calls []outcome) float64 {
	extra := 0
	for _, c := range calls {
		extra += c.hedges
	}
	return 100 * float64(extra) / float64(len(calls))
}
