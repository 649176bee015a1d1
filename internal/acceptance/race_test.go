package acceptance_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// While 64 goroutines call, one updates the scheduler four thousand times a second. What each call reports, when its attempts were
// made, and which functions of the user it called, are those of one configuration that was in force while it began.
func TestRule20_UpdateUnderLoad(t *testing.T) {
	const callers, updates = 64, 4 // updates a millisecond
	rounds := longtest.Size(8, 150)
	synctest.Test(t, func(t *testing.T) {
		u := &updated{configs: replacingEachOther(), of: map[string]int{}}
		for i := range u.configs {
			u.configs[i].options = append(u.configs[i].options, witnesses(u.configs[i].name)...)
		}
		u.scheduler = hedgetest.New(t, u.configs[0].options...)
		var over atomic.Bool
		var updater, group sync.WaitGroup
		updater.Go(func() {
			for !over.Load() {
				for range updates {
					n := u.begun.Add(1)
					if err := u.scheduler.Update(u.configs[n%int64(len(u.configs))].options...); err != nil {
						t.Error(err)
					}
					u.done.Store(n)
					runtime.Gosched()
				}
				time.Sleep(ms)
			}
		})
		for caller := range callers {
			group.Go(func() {
				time.Sleep(time.Duration(caller) * ms)
				for i := range rounds {
					u.check(t, u.call(uint64(caller*rounds+i), []string{method, ruled, reads}[(caller+i)%3]))
				}
			})
		}
		group.Wait()
		over.Store(true)
		updater.Wait()
		synctest.Wait()
		if got, want := u.scheduler.Stats().Calls, int64(callers*rounds); got != want {
			t.Errorf("%d calls counted, %d made", got, want)
		}
		t.Logf("%d updates; %d calls, by configuration %v; %d began while one was being replaced", u.done.Load(), callers*rounds, u.of, u.between)
		for _, c := range u.configs {
			// The machine decides which calls begin under which configuration; enough of them must, for the test to say something.
			if least := callers * rounds / len(u.configs) / 16; u.of[c.name] < least {
				t.Errorf("%d calls under %s, want at least %d", u.of[c.name], c.name, least)
			}
		}
	})
}

const (
	ruled = "/pkg.Svc/Ruled"
	reads = "/pkg.Svc/Reads"
)

// aConfig is one of the configurations that follow each other: what it says of each method, and what is called by its name.
type aConfig struct {
	name    string
	options []hedge.Option
	says    said            // of every method
	but     map[string]said // of some
}

// said is what a configuration says of a method.
type said struct {
	reason   stats.Reason // why no call has a hedge; "" if they have
	delay    time.Duration
	most     int // hedges
	nonFatal []codes.Code
}

var oneCode, otherCode = codes.Unavailable, codes.Aborted

func replacingEachOther() []aConfig {
	fixed := func(d time.Duration) hedge.Option { return hedge.WithTrigger(hedge.Fixed(d)) }
	return []aConfig{
		{name: "A", options: []hedge.Option{fixed(5 * ms), hedge.WithMaxHedges(1), hedge.WithNonFatalCodes(oneCode)}, says: said{"", 5 * ms, 1, []codes.Code{oneCode}}},
		{name: "B", options: []hedge.Option{fixed(20 * ms), hedge.WithMaxHedges(2), hedge.WithNonFatalCodes(otherCode)}, says: said{"", 20 * ms, 2, []codes.Code{otherCode}}},
		{name: "off", options: []hedge.Option{fixed(3 * ms), hedge.WithOff(true)}, says: said{reason: stats.SwitchedOff}},
		{name: "rules", options: []hedge.Option{
			fixed(11 * ms), hedge.WithMaxHedges(3), hedge.WithNonFatalCodes(oneCode, otherCode),
			hedge.WithTargetOptions("*", hedge.WithMethodOptions("/*/Rul*", fixed(7*ms), hedge.WithMaxHedges(2), hedge.WithNonFatalCodes(), hedge.WithBudgetPercent(400))),
		}, says: said{"", 11 * ms, 3, []codes.Code{oneCode, otherCode}}, but: map[string]said{ruled: {"", 7 * ms, 2, nil}}},
		{name: "dry run", options: []hedge.Option{fixed(13 * ms), hedge.WithDryRun(true)}, says: said{reason: stats.DryRun}},
	}
}

// Every primary fails after primaryFails, and every hedge answers hedgeTakes after it was sent. No hedge of any configuration is due
// when an attempt ends.
const primaryFails, hedgeTakes = 45 * time.Millisecond, 45 * time.Millisecond

// of returns what comes of a call whose primary fails with a code.
func (s said) of(code codes.Code) observed {
	o := observed{reason: s.reason, code: code, sent: []time.Duration{0}}
	if s.reason != "" {
		return o
	}
	o.delay = s.delay
	end := primaryFails
	if slices.Contains(s.nonFatal, code) {
		o.code, o.winner, end = codes.OK, 1, s.delay+hedgeTakes
	}
	for n := 1; n <= s.most && time.Duration(n)*s.delay < end; n++ {
		o.sent = append(o.sent, time.Duration(n)*s.delay)
	}
	return o
}

// observed is what is seen of a call from outside.
type observed struct {
	reason stats.Reason
	delay  time.Duration
	code   codes.Code
	winner int
	sent   []time.Duration // when each attempt was made, by its number
}

// aCall is one call. Its attempts and the user's functions write to it; what is written after it has ended, such as the
// end of a loser, is of no interest.
type aCall struct {
	id       uint64
	method   string
	from, to int64 // the configurations that were in force while it began

	mu      sync.Mutex
	sent    []time.Duration
	called  map[string]bool // whose functions it called
	seen    observed
	outcome stats.Outcome
}

type aCallKey struct{}

// witnesses are the options that every configuration has, with functions that note its name.
func witnesses(name string) []hedge.Option {
	note := func(ctx context.Context) {
		c := ctx.Value(aCallKey{}).(*aCall)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.called[name] = true
	}
	return []hedge.Option{
		hedge.WithAllMethods(), hedge.WithGuard(false), hedge.WithBudgetPercent(400),
		hedge.WithClass(func(ctx context.Context, _ string, _ any) string { note(ctx); return "class" }),
		hedge.WithCost(func(ctx context.Context, _ string, _ any) float64 { note(ctx); return 1 }),
	}
}

// updated is a scheduler that is updated all the time.
type updated struct {
	scheduler   *hedge.Scheduler
	configs     []aConfig
	begun, done atomic.Int64 // updates

	mu      sync.Mutex
	of      map[string]int // calls by the configuration that they were made under
	between int            // calls that began while one was being replaced
}

// call makes a call and returns what was seen of it. When its primary begins, the call has begun.
func (u *updated) call(id uint64, method string) *aCall {
	start := time.Now()
	c := &aCall{id: id, method: method, from: u.done.Load(), to: -1, called: map[string]bool{}}
	ctx := context.WithValue(context.Background(), aCallKey{}, c)
	err := interceptor.Unary(u.scheduler)(ctx, method, new(testpb.Request), new(testpb.Reply), nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		c.mu.Lock()
		if c.to < 0 {
			c.to = u.begun.Load()
		}
		c.sent = append(c.sent, time.Since(start))
		c.mu.Unlock()
		if simulation.AttemptOf(ctx) > 0 {
			return wait(ctx, hedgeTakes)
		}
		if err := wait(ctx, primaryFails); err != nil {
			return status.FromContextError(err).Err()
		}
		return status.Error(codeFor(id), "as every primary")
	}, hedge.Report(&c.outcome))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = observed{reason: c.outcome.Reason, delay: c.outcome.Delay, code: status.Code(err), winner: c.outcome.Winner, sent: slices.Clone(c.sent)}
	return c
}

// check compares a call with each configuration that was in force while it began.
func (u *updated) check(t *testing.T, c *aCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wants []string
	for v := c.from; v <= c.to; v++ {
		config := u.configs[v%int64(len(u.configs))]
		want := config.expects(c)
		wants = append(wants, fmt.Sprintf("%s: %+v", config.name, want))
		if fmt.Sprint(want) != fmt.Sprint(c.seen) || c.outcome.Attempts != len(want.sent) {
			continue
		}
		if len(c.called) > 1 || len(c.called) == 1 && !c.called[config.name] || len(want.sent) > 1 && len(c.called) == 0 {
			continue
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.of[config.name]++
		if c.to > c.from {
			u.between++
		}
		return
	}
	t.Errorf("%s: %+v, %d attempts, functions of %v; want one of:\n%s", c.method, c.seen, c.outcome.Attempts, c.called, strings.Join(wants, "\n"))
}

func (a *aConfig) expects(c *aCall) observed {
	s, ok := a.but[c.method]
	if !ok {
		s = a.says
	}
	return s.of(codeFor(c.id))
}

// codeFor is with what the primary of a call fails.
func codeFor(id uint64) codes.Code { return []codes.Code{oneCode, otherCode}[id/7%2] }
