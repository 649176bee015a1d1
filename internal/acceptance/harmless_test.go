package acceptance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/model"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

// The minutes of a run. Hedging is compared in the last minute of calm and in the one that begins
// when the effects of faults should be over.
const (
	calm    = 2 * time.Minute // before the first fault
	faulty  = 2 * time.Minute
	effects = 5 * time.Minute  // how long a fault may have an effect
	guarded = 15 * time.Minute // the same, where the guard holds hedges back: see docs/guard.md
)

// TestRule21_NeverWorseThanPlain draws servers, faults, options and traffic, and makes the same
// calls without hedging beside them. Play one run again with -model.seed.
func TestRule21_NeverWorseThanPlain(t *testing.T) {
	longtest.Simulation(t)
	var mu sync.Mutex
	var all tally
	t.Run("seeds", func(t *testing.T) {
		for seed := range (model.Counts{Short: 2, Long: 20, Full: 80}).Seeds() {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := runWorld(t, seed)
					mu.Lock()
					defer mu.Unlock()
					all.add(w.tally)
					if t.Failed() {
						t.Logf("replay with: -run Rule21 -model.seed=%d\n%v", seed, w)
					}
				})
			})
		}
	})
	t.Logf("%+v", all)
	if all.before.hedges == 0 || all.extra == 0 {
		t.Error("nothing was tested")
	}
	if all.calls > 100_000 {
		all.check(t)
	}
}

// minute is what happened in a minute.
type minute struct{ calls, hedges int64 }

func (m minute) share() float64 { return float64(m.hedges) / float64(max(m.calls, 1)) }

// tally is the result of a run.
type tally struct {
	before, after       minute
	calls, extra        int64
	failed, plainFailed int64
}

func (a *tally) add(b tally) {
	a.before.calls, a.before.hedges = a.before.calls+b.before.calls, a.before.hedges+b.before.hedges
	a.after.calls, a.after.hedges = a.after.calls+b.after.calls, a.after.hedges+b.after.hedges
	a.calls, a.extra = a.calls+b.calls, a.extra+b.extra
	a.failed, a.plainFailed = a.failed+b.failed, a.plainFailed+b.plainFailed
}

// check checks the sum of many runs: in a single run, chance hides differences.
func (a *tally) check(t *testing.T) {
	// After a fault the knowledge of calls differs, and so may the choice.
	if before, after := a.before.share(), a.after.share(); after < 0.85*before {
		t.Errorf("%.2f%% of calls were hedged before the faults, %.2f%% after", 100*before, 100*after)
	}
	if float64(a.failed) > float64(a.plainFailed)+0.001*float64(a.calls) {
		t.Errorf("%d calls of %d failed, %d without hedging", a.failed, a.calls, a.plainFailed)
	}
}

// runWorld makes the calls of a seed with hedging, then without, and checks both results.
func runWorld(t *testing.T, seed uint64) *world {
	w := drawWorld(seed)
	hedged := w.start(t, w.hedging(t))
	hedged.until(calm - time.Minute)
	w.before = hedged.minute()
	hedged.until(calm + faulty + effects)
	if slices.ContainsFunc(w.scheduler.Methods(), func(m stats.Method) bool { return m.Guard.Reason != "" }) {
		hedged.until(calm + faulty + guarded)
	}
	w.after = hedged.minute()
	hedged.end(t)
	w.calls, w.failed, w.extra = hedged.calls.Load(), hedged.failed.Load(), hedged.hedges.Load()

	plain := w.start(t, nil)
	plain.until(hedged.lasted)
	plain.end(t)
	w.plainFailed = plain.failed.Load()
	if over, at := w.book.over(w.share, w.scheduler.Stats().Failovers); over > 1e-6 || plain.calls.Load() != w.calls {
		t.Errorf("%d calls hedged and %d plain; %v more attempts beyond the first than the bound at %v", w.calls,
			plain.calls.Load(), over, at)
	}
	w.checkFailures(t)
	w.checkHedging(t)
	return w
}

// checkFailures allows a tenth of a point more failures than without hedging. The guard must see
// some failures of each quota before it knows of it, however few calls there are. In a run of
// 40,000 calls, as docs/guard.md has it, a tenth of a point is 40 calls; such a run has a quarter
// of these calls.
func (w *world) checkFailures(t *testing.T) {
	most := float64(w.plainFailed) + 0.001*float64(w.calls)
	for _, f := range w.faults {
		if f.kind == "quota" {
			most += 30
		}
	}
	if float64(w.failed) > most {
		t.Errorf("%d calls of %d failed, %d without hedging", w.failed, w.calls, w.plainFailed)
	}
}

// checkHedging compares the hedges of the two minutes. The number n of slow calls is random with
// standard deviation √n, and a difference has the variance of both minutes. One run in ten thousand
// exceeds four deviations. Learning from a thousand calls varies too: a fifth is allowed.
func (w *world) checkHedging(t *testing.T) {
	was := w.before.share() * float64(w.after.calls)
	chance := 4 * math.Sqrt(was*(1+float64(w.after.calls)/float64(max(w.before.calls, 1))))
	if is := float64(w.after.hedges); is < 0.8*was-chance {
		t.Errorf("%.2f%% of %d calls were hedged before the faults, %.2f%% of %d after", 100*w.before.share(), w.before.calls,
			100*w.after.share(), w.after.calls)
	}
}

// chance is whether something of a probability is so.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// oneOf draws one of the values.
func oneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// change is the effect of a fault on an attempt.
type change = func(a testserver.Attempt, at time.Duration, p *testserver.Plan)

// fault is a fault for some time, at the servers and the scheduler, or of attempts.
type fault struct {
	kind        string
	from, until time.Duration
	begin, end  func(c *client)
	attempts    func() change // for the calls of one client
}

// words are of statuses that relay what befell the server's own client.
var words = []string{
	"read tcp 10.0.0.7:52418->10.0.0.9:5432: read: connection reset by peer",
	"write tcp 10.0.0.7:52418->10.0.0.9:5432: write: broken pipe",
	"error reading from server: EOF",
	"http2: server sent GOAWAY and closed the connection; LastStreamID=11, ErrCode=ENHANCE_YOUR_CALM, " +
		"debug=\"too_many_resets\"",
	"transport is closing",
}

func (w *world) drawFault(r *rand.Rand, kinds ...string) *fault {
	f := &fault{kind: oneOf(r, kinds...), from: calm + time.Duration(r.Float64()*0.9*float64(faulty))}
	backend := r.IntN(w.backends)
	if f.kind == "quota" && w.settings.unguarded {
		f.kind = "stall" // nothing keeps hedges without the guard from using up a quota
	}
	f.until = min(f.from+time.Duration((0.02+0.98*r.Float64())*float64(faulty)), calm+faulty)
	always := func(c change) { f.attempts = func() change { return c } }
	switch f.kind {
	case "all slow":
		always(func(_ testserver.Attempt, _ time.Duration, p *testserver.Plan) { p.Delay = 5 * time.Second })
	case "rejected":
		always(func(_ testserver.Attempt, _ time.Duration, p *testserver.Plan) { p.PayloadBytes = 1 })
	case "not found":
		always(failing(codes.NotFound, "", 0.3, false, 0))
	case "words": // all attempts of a request fail together, or independently
		code, words := oneOf(r, codes.Unavailable, codes.Internal, codes.Unknown), oneOf(r, words...)
		always(failing(code, words, oneOf(r, 0.02, 0.2, 1), chance(r, 0.5), oneOf(r, 0, 5*ms, 200*ms)))
	case "quota": // attempts beyond a rate are refused, with a burst of two seconds
		method := oneOf(r, "Unary", "ServerStream")
		rate := w.rate * oneOf(r, 0.75, 0.25) * (0.5 + r.Float64())
		f.attempts = func() change {
			quota := simulation.NewQuota(rate, 2*rate)
			return func(a testserver.Attempt, at time.Duration, p *testserver.Plan) {
				if a.Method == "/hedgetest.TestService/"+method && quota.Take(a.ID, a.Number, at) != nil {
					p.Delay, p.Code, p.Message = 0, codes.ResourceExhausted, "quota"
				}
			}
		}
	case "poison":
		every, slow := uint64(50+r.IntN(500)), oneOf(r, 0, 0, 100*ms)
		always(func(a testserver.Attempt, _ time.Duration, p *testserver.Plan) {
			if a.ID%every == 0 {
				p.Delay, p.Ending = slow, testserver.CloseConn
			}
		})
	case "stall":
		always(func(a testserver.Attempt, at time.Duration, p *testserver.Plan) {
			if a.Backend == backend {
				p.Delay += f.until - at
			}
		})
	case "crash", "drain":
		f.until = min(f.until, f.from+time.Minute)
		f.begin = func(c *client) { c.cluster.Drain(backend) }
		if f.kind == "crash" {
			f.begin = func(c *client) { c.cluster.Stop(backend) }
		}
		f.end = func(c *client) { _ = c.cluster.Restart(backend) }
	case "update":
		to := drawSettings(r)
		to.unguarded, to.resets = w.settings.unguarded, w.settings.resets
		to.rejected, to.failover = w.settings.rejected, w.settings.failover
		w.share = max(w.share, to.share)
		f.begin, f.end = func(c *client) { c.update(to) }, func(c *client) { c.update(c.settings) }
	}
	return f
}

// failing lets a share of the requests fail, or of the attempts.
func failing(code codes.Code, words string, share float64, byAttempt bool, slow time.Duration) change {
	return func(a testserver.Attempt, _ time.Duration, p *testserver.Plan) {
		number := 0
		if byAttempt {
			number = a.Number
		}
		if simulation.Generator(21, a.ID, number).Float64() < share {
			p.Delay, p.Code, p.Message = slow, code, words
		}
	}
}

// happen begins and ends the fault at the servers and the scheduler.
func (f *fault) happen(c *client) {
	if f.begin != nil {
		time.Sleep(f.from)
		f.begin(c)
		time.Sleep(f.until - f.from)
		f.end(c)
	}
}

// TestRule12_EveryAttemptBeyondTheFirst draws traffic, faults and updates, and counts
// attempts at the servers. In any interval the attempts beyond the first of each call are within
// the bound.
func TestRule12_EveryAttemptBeyondTheFirst(t *testing.T) {
	longtest.Simulation(t)
	var extra, rejected, failovers int64
	for seed := range uint64(longtest.Table(6, 50, 200)) {
		synctest.Test(t, func(t *testing.T) {
			w := drawWorld(seed)
			r := rand.New(rand.NewPCG(seed, 12))
			w.rate, w.pool, w.limit, w.faults = math.Pow(10, 2.3*r.Float64()), 1, nil, nil
			w.settings.rejected, w.settings.failover = seed%2 == 0, seed%3 > 0
			for from := time.Duration(0); from < time.Minute; from += time.Duration(r.ExpFloat64() * float64(3*time.Second)) {
				f := w.drawFault(r, "words", "not found", "crash", "drain", "stall", "all slow", "rejected", "update")
				f.from, f.until = from, from+time.Duration(r.ExpFloat64()*float64(5*time.Second))
				w.faults = append(w.faults, f)
			}
			c := w.start(t, w.hedging(t))
			for second := range 60 {
				c.until(time.Duration(second+1) * time.Second)
				for _, m := range w.scheduler.Methods() {
					w.book.delay = max(w.book.delay, m.Delay)
				}
			}
			c.end(t)
			if over, at := w.book.over(w.share, w.scheduler.Stats().Failovers); over > 1e-6 {
				t.Errorf("seed %d: %v more attempts beyond the first than the bound at %v\n%v", seed, over, at, w)
			}
			extra += c.hedges.Load()
			rejected += w.scheduler.Stats().Rejected
			failovers += w.scheduler.Stats().Failovers
		})
	}
	if extra < 100 || rejected == 0 || failovers == 0 {
		t.Errorf("%d extra attempts, %d rejected answers, %d failovers: nothing was tested", extra, rejected, failovers)
	}
}

// attemptBook is what happened when.
type attemptBook struct {
	mu     sync.Mutex
	began  time.Time
	events []event
	delay  time.Duration // the longest
}

// event counts calls that begin, hedges that arrive at a server, and hedges that win.
type event struct {
	at                time.Duration
	call, extra, wins float64
}

func (b *attemptBook) add(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.at = time.Since(b.began)
	b.events = append(b.events, e)
}

// over is by how many attempts beyond the first exceed the bound, in the interval where that is most,
// and when it ends. The bound of an interval is the share of its calls, the burst at its start, two, and
// one for each hedge that wins. If calls failed over, the budget may have owed these, but no more than a
// burst.
func (b *attemptBook) over(share float64, failovers int64) (over float64, at time.Duration) {
	f, least, debt := 0.0, math.Inf(1), 0.0
	over = math.Inf(-1)
	for i := 0; i < len(b.events); {
		now := b.events[i].at
		burst := burstBefore(b.events[:i], now, share, max(2*time.Second, 5*b.delay))
		least, debt = min(least, f+burst), min(max(debt, burst), float64(failovers))
		for ; i < len(b.events) && b.events[i].at == now; i++ { // of one instant all counts, or nothing
			e := b.events[i]
			f += e.extra - share*e.call - e.wins
		}
		if o := f - least - 2 - debt; o > over {
			over, at = o, now
		}
	}
	return over, at
}

// burstBefore is the budget of the calls of a time, and at least one hedge.
func burstBefore(events []event, now time.Duration, share float64, life time.Duration) float64 {
	earned := 0.0
	for _, e := range slices.Backward(events) {
		if e.at < now-life {
			break
		}
		earned += share * e.call
	}
	return max(earned, 1)
}
