package acceptance_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	_ "github.com/grpchedge/hedge/proto" // the descriptors that WithIdempotentOnly reads
	"github.com/grpchedge/hedge/stats"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

func TestNilScheduler(t *testing.T) {
	for name, s := range map[string]*hedge.Scheduler{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			hedgetest.Call(t, s, target, method, 0)
			s.Pause()
			s.Resume()
			_, known := s.Latency(target, method, 0.5)
			if got := s.Stats(); got != (stats.Counts{}) || s.Methods() != nil || known {
				t.Errorf("it knows a call: %+v", got)
			}
			c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil, hedge.After(0))
			if send, again := hedgetest.Admit(&c, 1); c.Hedged() || send || again != 0 {
				t.Error("it hedges")
			}
			c.NotReplayable()
			c.End(hcall.Ending{})
			c.LoserPanicked()
		})
	}
}

func TestLearning_EachMethodByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(0))
		for range 100 {
			hedgetest.Call(t, s, target, "/pkg.Svc/Lookup", ms)
			hedgetest.Call(t, s, target, "/pkg.Svc/Export", 900*ms)
		}
		for i, row := range s.Methods() {
			name, want := []string{"/pkg.Svc/Export", "/pkg.Svc/Lookup"}[i], []time.Duration{900 * ms, ms}[i]
			p90, ok := s.Latency(target, row.Method, 0.9)
			for what, got := range map[string]time.Duration{"P50": row.P50, "P90": row.P90, "P99": row.P99, "Latency": p90} {
				if !ok || !within(got, want, 0.01) {
					t.Errorf("%s: %s = %v, want %v", name, what, got, want)
				}
			}
			if row.Method != name || row.Target != target || row.Calls != 100 {
				t.Errorf("%+v", row)
			}
			if row.Delay < want || !within(row.Delay, want, 0.021) { // rounded up, never down
				t.Errorf("%s: Delay = %v, want %v", name, row.Delay, want)
			}
		}
	})
}

func within(got, want time.Duration, share float64) bool {
	return float64(got) >= float64(want)*(1-share) && float64(got) <= float64(want)*(1+share)
}

// TestWarmup makes fast calls of 10 ms, then a slow one, and looks when that was hedged.
func TestWarmup(t *testing.T) {
	for _, tc := range []struct {
		warmup hedge.Option
		fast   int
		want   time.Duration // 0: not hedged
	}{
		{nil, 19, 0},
		{nil, 20, 10 * ms},
		{hedge.WithWarmup(3, 0), 0, 0},
		{hedge.WithWarmup(3, 0), 2, 0},
		{hedge.WithWarmup(3, 0), 3, 10 * ms},
		{hedge.WithWarmup(3, 30*ms), 0, 30 * ms},
		{hedge.WithWarmup(3, 30*ms), 2, 30 * ms},
		{hedge.WithWarmup(3, 30*ms), 3, 10 * ms},
		{hedge.WithWarmup(0, 0), 0, 0},
		{hedge.WithWarmup(0, 0), 1, 10 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, tc.warmup, hedge.WithBudgetPercent(400))
			for range tc.fast {
				hedgetest.Call(t, s, target, method, 10*ms)
			}
			began := time.Now()
			hedgedAt, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (time.Duration, error) {
				if isHedge(ctx) {
					return time.Since(began), nil
				}
				_, err := hedgetest.Taking(200 * ms)(ctx)
				return 0, err
			})
			// A young bucket holds no reserve, so the hedge is sent before twice the delay.
			if err != nil || hedgedAt < tc.want*97/100 || hedgedAt > 2*tc.want {
				t.Errorf("after %d fast calls: hedged after %v, want %v (%v)", tc.fast, hedgedAt, tc.want, err)
			}
		})
	}
}

// A service that always takes the same time must not be hedged because that time was rounded down.
func TestTrigger_LeavesASteadyServiceAlone(t *testing.T) {
	longtest.Simulation(t)
	for d := time.Millisecond; d < time.Minute; d = d * 103 / 100 {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t)
			for range 30 {
				hedgetest.Call(t, s, target, method, d)
			}
			if got := s.Stats(); got.Hedges > 0 {
				t.Errorf("calls that take %v: %+v", d, got)
			}
		})
	}
}

// state is a connection in a given state.
type state connectivity.State

func (s state) GetState() connectivity.State { return connectivity.State(s) }

// TestRule10_EachReasonIsCounted goes through the reasons for not sending a hedge that is due.
func TestRule10_EachReasonIsCounted(t *testing.T) {
	learning := hedge.WithWarmup(1<<30, 10*ms)
	for _, tc := range []struct {
		name     string
		options  []hedge.Option
		conn     hcall.Conn
		call     []grpc.CallOption
		before   func(*hedge.Scheduler)
		selected bool         // the options select the hedged methods
		want     stats.Counts // beside Calls
	}{
		{name: "all hold", options: []hedge.Option{learning}, want: stats.Counts{Warmup: 1, Hedged: 1, Hedges: 1}},
		{name: "learning", want: stats.Counts{Warmup: 1}},
		{name: "off", options: []hedge.Option{learning}, call: []grpc.CallOption{hedge.Off()}, want: stats.Counts{Off: 1}},
		{name: "no hedges", options: []hedge.Option{learning, hedge.WithMaxHedges(0)}, want: stats.Counts{Warmup: 1}},
		{name: "no budget", options: []hedge.Option{learning, hedge.WithBudgetPercent(0)}, want: stats.Counts{Warmup: 1}},
		{name: "budget spent", options: []hedge.Option{learning, hedge.WithBudgetPercent(1)},
			before: func(s *hedge.Scheduler) { spend(s) }, want: stats.Counts{Warmup: 1, BudgetExhausted: 1}},
		{name: "paused", options: []hedge.Option{learning}, before: (*hedge.Scheduler).Pause, want: stats.Counts{Paused: 1}},
		{name: "not ready", options: []hedge.Option{learning}, conn: state(connectivity.TransientFailure),
			want: stats.Counts{Warmup: 1, NotReady: 1}},
		{name: "idle", options: []hedge.Option{learning}, conn: state(connectivity.Idle),
			want: stats.Counts{Warmup: 1, NotReady: 1}},
		{name: "ready", options: []hedge.Option{learning}, conn: state(connectivity.Ready),
			want: stats.Counts{Warmup: 1, Hedged: 1, Hedges: 1}},
		{name: "not selected", options: []hedge.Option{learning, hedge.WithMethods("/pkg.Svc/List*")},
			want: stats.Counts{NotSelected: 1}},
		{name: "selected", options: []hedge.Option{learning, hedge.WithMethods("/pkg.Svc/List*"),
			hedge.WithMethods("/*/Get")}, want: stats.Counts{Warmup: 1, Hedged: 1, Hedges: 1}},
		{name: "not known to be idempotent", options: []hedge.Option{learning, hedge.WithIdempotentOnly()},
			want: stats.Counts{NoDescriptor: 1}},
		{name: "by the service config", options: []hedge.Option{named(`"10ms"`)}, conn: state(connectivity.Idle),
			want: stats.Counts{Hedged: 1, Hedges: 1}},
		{name: "not in the service config", options: []hedge.Option{learning, hedge.WithServiceConfig("{}")},
			selected: true, want: stats.Counts{NotSelected: 1}},
		{name: "After goes before the service config", options: []hedge.Option{hedge.WithServiceConfig("{}")},
			selected: true, call: []grpc.CallOption{hedge.After(10 * ms)}, want: stats.Counts{Hedged: 1, Hedges: 1}},
		{name: "After goes before the policy's delay", options: []hedge.Option{named(`"5s"`)},
			call: []grpc.CallOption{hedge.After(10 * ms)}, want: stats.Counts{Hedged: 1, Hedges: 1}},
		{name: "off goes before the service config", options: []hedge.Option{named(`"10ms"`)},
			call: []grpc.CallOption{hedge.Off()}, want: stats.Counts{Off: 1}},
		{name: "WithMethods goes before the service config",
			options: []hedge.Option{named(`"10ms"`), hedge.WithMethods("/a/B")}, want: stats.Counts{NotSelected: 1}},
		{name: "the policy has a budget", options: []hedge.Option{named(`"10ms"`), hedge.WithBudgetPercent(1)},
			before: func(s *hedge.Scheduler) { spend(s) }, want: stats.Counts{BudgetExhausted: 1}},
		{name: "a policy of which the budget pays for every hedge", options: []hedge.Option{named(`"10ms"`),
			hedge.WithBudgetPercent(400)}, want: stats.Counts{Hedged: 1, Hedges: 1}},
		{name: "throttled", options: []hedge.Option{learning, hedgetest.Throttle(2, 0.1)},
			before: func(s *hedge.Scheduler) { fail(s) }, want: stats.Counts{Warmup: 1, Throttled: 1}},
		{name: "After goes before selection", options: []hedge.Option{hedge.WithMethods("/pkg.Svc/List*")},
			call: []grpc.CallOption{hedge.After(10 * ms)}, want: stats.Counts{Hedged: 1, Hedges: 1}},
		{name: "Pause goes before After", call: []grpc.CallOption{hedge.After(10 * ms)},
			before: (*hedge.Scheduler).Pause, want: stats.Counts{Paused: 1}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			options := append([]hedge.Option{hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)}, tc.options...)
			if !tc.selected {
				options = append(options, hedge.WithAllMethods())
			}
			s := hedgetest.New(t, options...)
			if tc.before != nil {
				tc.before(s)
			}
			before := s.Stats()
			c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, tc.conn, tc.call...)
			if c.Hedged() {
				plan := c.Plan()
				if plan.Due != 10*ms || plan.Delay != 10*ms {
					t.Errorf("plan %+v", plan)
				}
				time.Sleep(plan.Due)
				send, again := hedgetest.Admit(&c, 1)
				if send != (tc.want.Hedges > 0) {
					t.Errorf("Admit(1) = %v", send)
				}
				for range 3 { // asked again, it is still one hedge that was held back
					if again > 0 {
						time.Sleep(again)
						_, again = hedgetest.Admit(&c, 1)
					}
				}
			}
			tc.want.Calls = 1
			if got := difference(s.Stats(), before); got != tc.want {
				t.Errorf("%+v,\nwant %+v", got, tc.want)
			}
		})
	}
}

// named gives the test's method a policy with this delay.
func named(delay string) hedge.Option {
	delay = strings.Replace(delay, "10ms", "0.01s", 1)
	return hedge.WithServiceConfig(`{"methodConfig": [{"name": [{"service": "pkg.Svc", "method": "Get"}],
		"hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": ` + delay + `}}]}`)
}

// fail lets one call to the target fail.
func fail(s *hedge.Scheduler) {
	c := hcall.Begin((*registry.Registry)(s), context.Background(), target, method, nil, hedge.Off())
	c.End(hcall.Ending{Err: status.Error(codes.Unavailable, "")})
}

// spend empties the target's budget.
func spend(s *hedge.Scheduler) {
	for {
		c := hcall.Begin((*registry.Registry)(s), context.Background(), target, method, nil)
		if send, _ := hedgetest.Admit(&c, 1); !send {
			return
		}
	}
}

func difference(a, b stats.Counts) stats.Counts {
	a.Calls -= b.Calls
	a.Hedged -= b.Hedged
	a.Hedges -= b.Hedges
	a.Warmup -= b.Warmup
	a.BudgetExhausted -= b.BudgetExhausted
	a.Off -= b.Off
	return a
}

func TestRule10_DeadlineTooNear(t *testing.T) {
	for _, tc := range []struct {
		timeout time.Duration
		hedged  bool
	}{{35 * ms, false}, {45 * ms, true}} {
		synctest.Test(t, func(t *testing.T) {
			// The median is 20 ms and the delay 20 ms: a hedge has an answer to be expected 40 ms
			// into the call.
			s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
			for range 100 {
				hedgetest.Call(t, s, target, method, 20*ms)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
			defer cancel()
			_, err := hedge.Do(ctx, s, target, method, hedgetest.Taking(time.Second))
			if status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
			want := stats.Counts{Calls: 101, Warmup: 20, DeadlineNear: 1}
			if tc.hedged {
				want = stats.Counts{Calls: 101, Warmup: 20, Hedged: 1, Hedges: 1}
			}
			if got := s.Stats(); got != want {
				t.Errorf("timeout %v: %+v, want %+v", tc.timeout, got, want)
			}
		})
	}
}

func TestWithIdempotentOnly_ReadsTheDescriptors(t *testing.T) {
	const service = "/hedgetest.TestService/"
	for want, names := range map[stats.Counts][]string{
		{Calls: 1, Warmup: 1}: {
			service + "UnaryNoSideEffects", service + "UnaryIdempotent", service + "ServerStreamIdempotent"},
		{Calls: 1, NotSelected: 1}:  {service + "Unary", service + "ServerStream"},
		{Calls: 1, NoDescriptor: 1}: {service + "Missing", "/hedgetest.Request/id", "/not.Linked/In", "nonsense", ""},
	} {
		for _, name := range names {
			s := hedgetest.All(t, hedge.WithIdempotentOnly(), hedge.WithWarmup(10, ms))
			c := hcall.Begin((*registry.Registry)(s), t.Context(), target, name, nil)
			if got := s.Stats(); got != want || c.Hedged() != (want.Warmup > 0) {
				t.Errorf("%q: hedged %v, %+v, want %+v", name, c.Hedged(), got, want)
			}
		}
	}
}

func TestPreviousAttempts(t *testing.T) {
	values := map[string]int{"1": 1, "4": 4, "1 2": 2, "": 0, "-1": 0, "many": 0, "99999999999999999999": 0}
	for value, want := range values {
		md := metadata.MD{"grpc-previous-rpc-attempts": strings.Fields(value)}
		if got := hedge.PreviousAttempts(metadata.NewIncomingContext(t.Context(), md)); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
	if got := hedge.PreviousAttempts(t.Context()); got != 0 {
		t.Errorf("outside of a call: %d", got)
	}
}
