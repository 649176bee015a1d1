package acceptance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// world is servers, their faults, a client and its traffic, as a seed draws them.
type world struct {
	seed     uint64
	backends int
	far      time.Duration // by how much the last backend is farther away
	pool     int           // connections of the client, each with one to each backend
	policy   string        // load balancing
	rate     float64       // calls a second
	limit    *testserver.Limit
	faults   []*fault

	settings  settings
	scheduler *hedge.Scheduler
	share     float64 // the largest of the budget
	book      attemptBook

	tally
}

func drawWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 21))
	w := &world{
		seed: seed, backends: 2 + r.IntN(3), pool: oneOf(r, 1, 1, 2, 4, 10, 64), rate: 10 + 15*r.Float64(),
	}
	if chance(r, 0.3) {
		w.far = 15 * ms
	}
	w.policy = oneOf(r, `{"round_robin": {}}`,
		fmt.Sprintf(`{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]%s}}`,
			oneOf(r, ``, `, "connections": 2`, `, "silence": false`)))
	w.settings = drawSettings(r)
	w.share = w.settings.share
	w.drawLimit(r)
	for range 1 + r.IntN(4) {
		w.faults = append(w.faults, w.drawFault(r, "words", "quota", "crash", "poison", "drain", "stall", "update"))
	}
	return w
}

// drawLimit lets some servers count resets. The limit of a server that cuts without a reason must
// be configured, unless it is hardly ever reached.
func (w *world) drawLimit(r *rand.Rand) {
	if !chance(r, 0.3) {
		return
	}
	kind := r.IntN(4)
	if kind == 2 {
		w.limit = &testserver.LimitLikeApache
		return
	}
	w.limit = &testserver.Limit{Resets: 20 + r.IntN(80), Per: time.Minute}
	switch kind {
	case 0:
		w.limit.Close, w.limit.Debug = testserver.CloseCalm, "too many resets"
	case 1:
		w.limit.Close = testserver.CloseAfterCalls
	default:
		w.limit.Close, w.settings.resets = testserver.CloseSilently, w.limit.Resets/2
	}
}

// String lists the draws.
func (w *world) String() string {
	faults := ""
	for _, f := range w.faults {
		faults += fmt.Sprintf("%s from %v to %v, ", f.kind, f.from, f.until)
	}
	return fmt.Sprintf("%d backends, the last %v farther; %d connections by %s; %.1f calls a second; limit "+
		"%+v\n%+v\n%s\n%+v", w.backends, w.far, w.pool, w.policy, w.rate, w.limit, w.settings, faults, w.tally)
}

// hedging makes the scheduler and returns the options of connections that use it.
func (w *world) hedging(t *testing.T) []grpc.DialOption {
	w.book.began = time.Now()
	w.scheduler = hedgetest.New(t, w.options(w.settings)...)
	return append(hedgetest.Interceptors(w.scheduler),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [`+w.policy+`]}`))
}

// client makes a world's calls, with hedging or without.
type client struct {
	*world
	hedged  bool
	r       *rand.Rand
	began   time.Time
	lasted  time.Duration
	cluster *testserver.Cluster
	conns   []testpb.TestServiceClient
	id      uint64
	group   sync.WaitGroup

	calls, failed, hedges atomic.Int64
}

// start starts the servers, and connects to them. Without options it is plain gRPC that calls them.
func (w *world) start(t *testing.T, options []grpc.DialOption) *client {
	c := &client{world: w, hedged: options != nil, r: rand.New(rand.NewPCG(w.seed, 22))}
	c.cluster = testserver.StartT(t, testserver.Config{
		Backends: w.backends, InMemory: true, Seed: w.seed, DrawByID: true, CountsOnly: true, Limit: w.limit,
	})
	// gRPC waits a random time, of up to minutes, before it connects again, so that no two runs
	// would have the same outage.
	options = append(options, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 100 * ms, MaxDelay: 200 * ms, Multiplier: 2}, MinConnectTimeout: 20 * time.Second,
	}))
	for range w.pool {
		conn := c.cluster.ClientT(t, options...)
		testserver.ConnectT(t, conn)
		c.conns = append(c.conns, testpb.NewTestServiceClient(conn))
	}
	synctest.Wait()
	c.began = time.Now()
	c.cluster.SetScript(c.script())
	for _, f := range w.faults {
		c.group.Go(func() { f.happen(c) })
	}
	return c
}

var usually = testserver.Straggler(testserver.LogNormal(5*ms, 3*ms), 0.05, 10)

// script is the behavior of the servers, with the faults of the moment.
func (c *client) script() testserver.Script {
	var faults []change
	for _, f := range c.faults {
		if f.attempts != nil {
			change := f.attempts()
			faults = append(faults, func(a testserver.Attempt, at time.Duration, p *testserver.Plan) {
				if f.from <= at && at < f.until {
					change(a, at, p)
				}
			})
		}
	}
	return func(a testserver.Attempt) testserver.Plan {
		if a.Number > 0 {
			c.hedges.Add(1)
			c.book.add(event{extra: 1})
		}
		p := testserver.Plan{Delay: a.Draw(usually)}
		if a.Backend == c.backends-1 {
			p.Delay += c.far
		}
		for _, f := range faults {
			f(a, a.Arrival.Sub(c.began), &p)
		}
		return p
	}
}

// until makes calls at random times until then.
func (c *client) until(then time.Duration) {
	for time.Since(c.began) < then {
		c.id++
		c.calls.Add(1)
		request, conn := &testpb.Request{Id: c.id, Messages: 1}, c.conns[c.r.IntN(len(c.conns))]
		streamed := c.r.IntN(4) == 0
		if c.hedged {
			c.book.add(event{call: 1})
		}
		c.group.Go(func() {
			if ask(conn, request, streamed) != nil {
				c.failed.Add(1)
			}
		})
		time.Sleep(time.Duration(c.r.ExpFloat64() / c.rate * float64(time.Second)))
	}
	c.lasted = then
}

func ask(conn testpb.TestServiceClient, request *testpb.Request, streamed bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := map[bool]hedgetest.Kind{false: hedgetest.Unary, true: hedgetest.Stream}[streamed](ctx, conn, request)
	return err
}

// minute makes the calls of a minute, and returns the number of calls and of hedges.
func (c *client) minute() minute {
	calls, hedges := c.calls.Load(), c.hedges.Load()
	c.until(c.lasted + time.Minute)
	return minute{c.calls.Load() - calls, c.hedges.Load() - hedges}
}

// end waits for all calls, and checks that nothing of them is left.
func (c *client) end(t *testing.T) {
	c.group.Wait()
	time.Sleep(30 * time.Second) // losers that were left end
	synctest.Wait()
	if n := c.cluster.Counts().InFlight; n != 0 {
		t.Errorf("%d attempts still run", n)
	}
	c.cluster.Close()
}

// settings are options of a scheduler.
type settings struct {
	share     float64 // of the budget
	hedges    int
	reads     bool // methods only read; otherwise they may run twice
	unguarded bool
	rejected  bool // replies with a payload are no answers
	failover  bool
	resets    int // WithHedgeLimit, a minute; 0: none
	trigger   hedge.Trigger
}

// drawSettings draws options.
func drawSettings(r *rand.Rand) settings {
	s := settings{
		share: oneOf(r, 0.02, 0.1, 0.1, 0.5), hedges: 1 + r.IntN(4), reads: chance(r, 0.5),
		unguarded: chance(r, 0.1),
		trigger:   oneOf(r, hedge.Auto(), hedge.Auto(), hedge.Percentile(0.95), hedge.Fixed(20*time.Millisecond)),
	}
	if chance(r, 0.2) {
		s.resets = 10 + r.IntN(90)
	}
	return s
}

// options are the options of a configuration.
func (w *world) options(s settings) []hedge.Option {
	methods := hedge.WithMethods("/*/*")
	if s.reads {
		methods = hedge.WithReadOnlyMethods("/*/*")
	}
	opts := with{
		methods, hedge.WithTrigger(s.trigger), hedge.WithMaxHedges(s.hedges), hedge.WithBudgetPercent(100 * s.share),
		hedge.WithTrace(&hedge.Trace{CallDecided: func(c stats.CallDecided) {
			if c.Winner > 0 {
				w.book.add(event{wins: 1})
			}
		}}),
	}
	if s.unguarded {
		opts = append(opts, hedge.WithGuard(false))
	}
	if s.rejected {
		opts = append(opts, hedge.WithAcceptable(func(_ context.Context, _ string, reply any, err error) bool {
			return err == nil && len(reply.(*testpb.Reply).GetPayload()) == 0
		}))
	}
	if s.failover {
		opts = append(opts, hedge.WithFailover(codes.Unavailable, codes.Internal))
	}
	if s.resets > 0 {
		opts = append(opts, hedge.WithHedgeLimit(s.resets, time.Minute))
	}
	return opts
}

// update changes the options, if the client hedges.
func (c *client) update(s settings) {
	if c.hedged {
		if err := c.scheduler.Update(c.options(s)...); err != nil {
			panic(err)
		}
	}
}
