package worlds

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Call is one call that has ended.
type Call struct {
	At, Took time.Duration
	Hedges   int
	Useless  bool // hedged, and answered by its primary
	Method   int
}

type event struct {
	at   time.Duration
	kind uint8
	call *call
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

type call struct {
	id       uint64
	start    time.Duration
	method   int
	learner  *trigger.Learner
	to       *trigger.Learner // of hedges
	budget   *budget.Bucket
	estimate *trigger.Estimate
	delay    time.Duration
	drawn    bool            // undrawn is known
	undrawn  time.Duration   // the age at which it was not drawn; 0: it was
	until    time.Duration   // the age of its hedge; 0: it was drawn
	sent     []time.Duration // when each hedge was sent
	over     bool
	served   [8]bool // whether a worker serves the attempt
}

// Simulation is a run of a world. It processes one event at a time, without a scheduler, goroutines
// or timers: ten times faster than package simulation. It sends hedges by the rules of
// call.Call.Admit.
type Simulation struct {
	Learner *trigger.Learner // of the first client's first method
	Epoch   time.Time
	Calls   []Call

	world    World
	law      Law
	seed     uint64
	config   *trigger.Config
	known    []*trigger.Estimate // by method, fixed from the first call on; none: learned
	learners []trigger.Learner   // by client, then method
	far      []trigger.Learner   // of the hedges' destination, if it is another one
	budgets  []*budget.Bucket    // of each client
	queue    events
	now      time.Duration
	next     uint64
	random   *rand.Rand
	begun    uint64
	busy     []int     // workers of each server
	waiting  [][]event // for a worker of each server
}

// Run simulates a world under a policy.
func (w World) Run(seed uint64, p Policy) *Simulation {
	w.Budget, w.Calls = cmp.Or(w.Budget, 10), cmp.Or(w.Calls, 40_000)
	w.Clients = max(w.Clients, 1)
	if w.Medians == nil {
		w.Medians = []float64{5}
	}
	c := &trigger.Config{
		Quantile: .90, Auto: true, MaxHedges: cmp.Or(w.Hedges, 2), BudgetPercent: w.Budget,
		MinDelay: time.Millisecond, WarmupCalls: 20, Window: 30 * time.Second,
	}
	s := &Simulation{
		world: w, law: w.Law, seed: seed, config: c, Epoch: time.Unix(1e9, 0), Calls: make([]Call, w.Calls),
		random: simulation.Generator(seed, 7, 7),
		busy:   make([]int, w.Servers.Count), waiting: make([][]event, w.Servers.Count),
		learners: make([]trigger.Learner, w.Clients*len(w.Medians)),
		far:      make([]trigger.Learner, w.Clients*len(w.Medians)),
	}
	if w.Begin != nil {
		s.law = w.Begin(seed)
	}
	s.known = p.configure(c, w.Medians)
	s.Learner = &s.learners[0]
	var calls *trigger.Calls
	for i := range s.learners {
		if i%len(w.Medians) == 0 {
			s.budgets, calls = append(s.budgets, budget.New(c.BudgetPercent)), new(trigger.Calls)
		}
		s.learners[i].Start(c, trigger.Owner{
			Budget: s.budgets[i/len(w.Medians)], Calls: calls, Origin: s.Epoch, Run: func(choose func()) { choose() },
		})
		if w.Elsewhere {
			s.far[i].Start(c, trigger.Owner{Origin: s.Epoch})
			s.learners[i].HedgesGoTo(&s.far[i])
		}
	}
	for range max(w.Concurrency, 1) {
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

// Time returns the time of the latest event.
func (s *Simulation) Time() time.Time { return s.Epoch.Add(s.now) }

func (s *Simulation) arrive(at time.Duration) {
	if s.next < uint64(s.world.Calls) {
		heap.Push(&s.queue, event{at: at, kind: arrives})
		s.next++
	}
}

func (s *Simulation) begin() {
	id, w := s.begun, &s.world
	s.begun++
	switch gathered := uint64(w.Gathered); {
	case gathered > 0 && s.begun%gathered == 0:
		s.arrive(time.Duration(s.begun/gathered) * w.Every)
	case gathered > 0:
		s.arrive(s.now + time.Microsecond)
	case w.Arrivals != nil:
		s.arrive(s.now + w.Arrivals(s.random, s.now))
	case w.Concurrency == 0:
		s.arrive(s.now + time.Duration(s.random.ExpFloat64()/w.Rate*1e9))
	}
	c := &call{id: id, start: s.now}
	if w.Method != nil {
		c.method = w.Method(s.seed, id)
	}
	client := 0
	switch {
	case w.Restarts:
		client = int(id) * w.Clients / w.Calls
	case w.Clients > 1:
		client = simulation.Generator(s.seed, id, -3).IntN(w.Clients)
	}
	i := client*len(w.Medians) + c.method
	if c.learner, c.to = &s.learners[i], &s.learners[i]; w.Elsewhere {
		c.to = &s.far[i]
	}
	c.budget = s.budgets[client]
	switch {
	case s.known != nil:
		c.estimate = s.known[c.method]
	case s.config.MaxHedges > 0:
		c.estimate = c.learner.EstimateFor(s.Time())
	}
	if c.estimate != nil {
		c.delay = c.estimate.Delay
	}
	c.budget.Earn(s.Time(), c.delay)
	if c.estimate != nil && s.config.MaxHedges > 0 {
		heap.Push(&s.queue, event{at: s.now + c.delay, kind: due, call: c})
	}
	if w.Deadline > 0 {
		heap.Push(&s.queue, event{at: s.now + w.Deadline, kind: expires, call: c})
	}
	s.send(c, 0)
}

// send sends an attempt. If there are servers, the attempt may wait for a worker.
func (s *Simulation) send(c *call, n int) {
	e := event{kind: ends, call: c, n: n}
	if s.world.Servers.Count > 0 {
		at := s.serverOf(c, n)
		if s.busy[at] == s.world.Servers.Workers {
			s.waiting[at] = append(s.waiting[at], e)
			return
		}
		s.busy[at]++
		c.served[n] = true
	}
	e.at = s.now + s.law(s.seed, c.id, n, s.now)
	heap.Push(&s.queue, e)
}

func (s *Simulation) serverOf(c *call, n int) int {
	return Backend(s.seed, c.id, n, s.world.Servers.Count)
}

// release hands the worker of an attempt to the next waiting attempt.
func (s *Simulation) release(c *call, n int) {
	if !c.served[n] {
		return
	}
	c.served[n] = false
	at := s.serverOf(c, n)
	s.busy[at]--
	for len(s.waiting[at]) > 0 {
		next := s.waiting[at][0]
		s.waiting[at] = s.waiting[at][1:]
		if !next.call.over || s.world.Servers.Finish {
			s.send(next.call, next.n)
			return
		}
	}
}

// due mirrors call.Call.Admit.
func (s *Simulation) due(c *call) {
	e, age := c.estimate, s.now-c.start
	again := func(after time.Duration) {
		heap.Push(&s.queue, event{at: s.now + max(after, 250*time.Microsecond), kind: due, call: c})
	}
	if len(c.sent) >= e.Hedges {
		return
	}
	if !c.drawn && s.config.Auto {
		if c.delay = max(c.delay, c.learner.Estimate().Delay); age < c.delay {
			again(c.delay - age)
			return
		}
	}
	if !c.drawn {
		c.drawn = true
		if c.until = c.learner.Draw(e, age); c.until > 0 {
			c.undrawn = age
		}
	}
	if c.until == trigger.Never {
		return
	}
	if until := time.Duration(len(c.sent)+1) * c.until; age < until {
		again(until - age)
		return
	}
	keep := 0.0
	if len(c.sent) == 0 && s.config.Auto && s.known == nil {
		keep = min(max(2-float64(age)/float64(c.delay), 0), 1)
	}
	if paid, _ := c.budget.Pay(s.Time(), keep); !paid {
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
	c.sent = append(c.sent, s.now)
	s.send(c, len(c.sent))
	again(c.delay)
}

// ended ends a call with the answer of an attempt, or, if n is -1, at its deadline.
func (s *Simulation) ended(c *call, n int) {
	c.over = true
	for k := 0; k <= len(c.sent) && s.world.Servers.Stop; k++ {
		s.release(c, k)
	}
	s.Calls[c.id] = Call{c.start, s.now - c.start, len(c.sent), len(c.sent) > 0 && n == 0, c.method}
	if s.known == nil && s.config.MaxHedges > 0 {
		s.learn(c, n)
	}
	if len(c.sent) > 0 {
		c.budget.Hedged(n > 0)
	}
	if s.world.Concurrency > 0 {
		s.arrive(s.now)
	}
}

// learn teaches the learner the latencies of a call that attempt n has ended.
func (s *Simulation) learn(c *call, n int) {
	c.learner.PrimaryEnded(s.Time(), s.now-c.start, n == 0)
	for k, at := range c.sent {
		c.learner.HedgeEnded(c.to, s.Time(), s.now-at, n == k+1)
	}
	if c.undrawn > 0 {
		to := s.now - c.start
		if len(c.sent) > 0 {
			to = c.sent[0] - c.start
		}
		c.learner.UndrawnCall(s.Time(), c.estimate, c.undrawn, c.until, to, n == 0 && len(c.sent) == 0)
	}
	if len(c.sent) > 0 {
		c.learner.HedgedCall(c.sent[0]-c.start, s.now-c.sent[0], c.estimate.Hedges)
	}
}
