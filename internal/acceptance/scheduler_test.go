package acceptance_test

import (
	"cmp"
	"context"
	"reflect"
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

type with = []hedge.Option

func TestNilScheduler(t *testing.T) {
	for name, s := range map[string]*hedge.Scheduler{"nil": nil, "zero": {}} {
		hedgetest.Call(t, s, target, method, 0)
		s.Pause()
		s.Resume()
		_, known := s.Latency(target, method, 0.5)
		if got := s.Stats(); got != (stats.Counts{}) || s.Methods() != nil || known {
			t.Errorf("%s: it has learned from a call: %+v", name, got)
		}
	}
}

func within(got, want time.Duration, share float64) bool {
	return float64(got) >= float64(want)*(1-share) && float64(got) <= float64(want)*(1+share)
}

// TestWarmup makes fast calls of 10 ms, then a slow one, and looks when that was hedged.
func TestWarmup(t *testing.T) {
	for _, tc := range []struct {
		option hedge.Option
		fast   int
		want   time.Duration // 0: not hedged
	}{
		{hedge.WithTrigger(hedge.Fixed(100 * time.Microsecond)), 0, 100 * time.Microsecond}, // no least delay
		{hedge.WithTrigger(hedge.Fixed(25 * ms)), 30, 25 * ms},
		{nil, 19, 0},
		{nil, 20, 10 * ms},
		{hedge.WithWarmup(3, 0), 2, 0},
		{hedge.WithWarmup(3, 0), 3, 10 * ms},
		{hedge.WithWarmup(3, 30*ms), 0, 30 * ms},
		{hedge.WithWarmup(3, 30*ms), 2, 30 * ms},
		{hedge.WithWarmup(3, 30*ms), 3, 10 * ms},
		{hedge.WithWarmup(0, 0), 0, 0},
		{hedge.WithWarmup(0, 0), 1, 10 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			var at time.Duration
			s := hedgetest.All(t, tc.option, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1),
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(e stats.HedgeSent) { at = e.Age }}))
			for range tc.fast {
				hedgetest.Call(t, s, target, method, 10*ms)
			}
			hedgetest.Call(t, s, target, method, 200*ms)
			// A young bucket holds no reserve, so the hedge is sent before twice the delay.
			if at < tc.want*97/100 || at > 2*tc.want {
				t.Errorf("after %d fast calls: hedged after %v, want %v", tc.fast, at, tc.want)
			}
		})
	}
}

// state is a connection in a given state.
type state connectivity.State

func (s state) GetState() connectivity.State { return connectivity.State(s) }

func TestRule10_EachReasonIsCounted(t *testing.T) {
	type counts = stats.Counts
	learn := hedge.WithWarmup(1<<30, 10*ms)
	list, after := hedge.WithMethods("/pkg.Svc/List*"), hedge.After(10*ms)
	warmup, sent := counts{Warmup: 1}, counts{Warmup: 1, Hedged: 1, Hedges: 1}
	learned := counts{Hedged: 1, Hedges: 1}
	served := func(md metadata.MD) context.Context { return metadata.NewIncomingContext(context.Background(), md) }
	for _, tc := range []struct {
		name     string
		opts     []hedge.Option
		conn     hcall.Conn
		ctx      context.Context
		call     grpc.CallOption
		before   func(*hedge.Scheduler)
		selected bool         // the options select the hedged methods
		want     stats.Counts // beside Calls
	}{
		{name: "all hold", opts: with{learn}, want: sent},
		{name: "learning", want: warmup},
		{name: "off", opts: with{learn}, call: hedge.Off(), want: counts{Off: 1}},
		{name: "no hedges", opts: with{learn, hedge.WithMaxHedges(0)}, want: warmup},
		{name: "no budget", opts: with{learn, hedge.WithBudgetPercent(0)}, want: warmup},
		{name: "budget spent", opts: with{learn, hedge.WithBudgetPercent(1)}, before: spend,
			want: counts{Warmup: 1, BudgetExhausted: 1}},
		{name: "paused", opts: with{learn}, before: (*hedge.Scheduler).Pause, want: counts{Paused: 1}},
		{name: "not ready", opts: with{learn}, conn: state(connectivity.TransientFailure),
			want: counts{Warmup: 1, NotReady: 1}},
		{name: "idle", opts: with{learn}, conn: state(connectivity.Idle), want: counts{Warmup: 1, NotReady: 1}},
		{name: "ready", opts: with{learn}, conn: state(connectivity.Ready), want: sent},
		{name: "not selected", opts: with{learn, list}, want: counts{NotSelected: 1}},
		{name: "selected", opts: with{learn, list, hedge.WithMethods("/*/Get")}, want: sent},
		{name: "not known to be idempotent", opts: with{learn, hedge.WithIdempotentOnly()}, want: counts{NoDescriptor: 1}},
		{name: "for a hedge", opts: with{learn}, want: counts{Warmup: 1, OfHedges: 1},
			ctx: served(metadata.Pairs("grpc-previous-rpc-attempts", "1"))},
		{name: "for a primary", opts: with{learn}, ctx: served(metadata.Pairs("a", "b")), want: sent},
		{name: "by the service config", opts: with{policy("0.01s")}, want: learned},
		{name: "by the service config, idle", opts: with{policy("0.01s")}, conn: state(connectivity.Idle),
			want: counts{NotReady: 1}},
		{name: "not in the service config", opts: with{learn, hedge.WithServiceConfig("{}")},
			selected: true, want: counts{NotSelected: 1}},
		{name: "After goes before the service config", opts: with{hedge.WithServiceConfig("{}")},
			selected: true, call: after, want: learned},
		{name: "After goes before the policy's delay", opts: with{policy("5s")}, call: after, want: learned},
		{name: "off goes before the service config", opts: with{policy("0.01s")}, call: hedge.Off(), want: counts{Off: 1}},
		{name: "WithMethods goes before the service config", opts: with{policy("0.01s"), list},
			want: counts{NotSelected: 1}},
		{name: "the budget is not for the policy", opts: with{policy("0.01s"), hedge.WithBudgetPercent(1)},
			before: hundred, want: learned},
		{name: "no budget, no policy", opts: with{policy("0.01s"), hedge.WithBudgetPercent(0)}, want: counts{}},
		{name: "a rule gives the policy a budget", opts: with{policy("0.01s"),
			hedge.WithMethodOptions("/pkg.Svc/*", hedge.WithBudgetPercent(1))}, before: spend,
			want: counts{BudgetExhausted: 1}},
		{name: "a rule goes before the policy's delay", opts: with{policy("5s"),
			hedge.WithMethodOptions("/pkg.Svc/*", hedge.WithTrigger(hedge.Fixed(10*ms)))}, want: learned},
		{name: "a rule goes before the policy's maximum", opts: with{policy("5s"),
			hedge.WithMethodOptions("/pkg.Svc/*", hedge.WithMaxHedges(0))}, want: counts{}},
		{name: "throttled", opts: with{learn, hedgetest.Throttle(2, 0.1)}, before: fail,
			want: counts{Warmup: 1, Throttled: 1}},
		{name: "guarded", opts: with{learn}, before: failHedge(codes.ResourceExhausted),
			want: counts{Warmup: 1, Guarded: 1}},
		{name: "no guard", opts: with{learn, hedge.WithGuard(false)},
			before: failHedge(codes.ResourceExhausted), want: sent},
		{name: "a hedge failed by chance", opts: with{learn}, before: failHedge(codes.Unavailable), want: sent},
		{name: "in the control group", opts: with{learn, hedge.WithControl(100)}, want: counts{Warmup: 1, Control: 1}},
		{name: "After goes before selection", opts: with{list}, call: after, want: learned},
		{name: "After with no hedges", call: after, opts: with{hedge.WithMaxHedges(0)}, want: counts{}},
		{name: "After with no budget", call: after, opts: with{hedge.WithBudgetPercent(0)}, want: counts{}},
		{name: "Pause goes before After", call: after, before: (*hedge.Scheduler).Pause, want: counts{Paused: 1}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			options := append(with{hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)}, tc.opts...)
			if !tc.selected {
				options = append(options, hedge.WithAllMethods())
			}
			s := hedgetest.New(t, options...)
			if tc.before != nil {
				tc.before(s)
			}
			before := s.Stats()
			c := hcall.Begin((*registry.Registry)(s), cmp.Or(tc.ctx, t.Context()), target, method, tc.conn, tc.call)
			if c.Hedged {
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
			got, want := reflect.ValueOf(s.Stats()), tc.want
			for i, w := 0, reflect.ValueOf(&want).Elem(); i < w.NumField(); i++ {
				w.Field(i).SetInt(w.Field(i).Int() + reflect.ValueOf(before).Field(i).Int())
			}
			if want.Calls++; got.Interface() != want {
				t.Errorf("%+v,\nwant %+v", got, want)
			}
		})
	}
}

// policy gives the test's method a policy with this delay.
func policy(delay string) hedge.Option {
	return hedge.WithServiceConfig(`{"methodConfig": [{"name": [{"service": "pkg.Svc", "method": "Get"}],
		"hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "` + delay + `"}}]}`)
}

// begin begins a call of target and method.
func begin(ctx context.Context, s *hedge.Scheduler, opts ...grpc.CallOption) *hcall.Call {
	c := hcall.Begin((*registry.Registry)(s), ctx, target, method, nil, opts...)
	return &c
}

// fail lets one call to the target fail.
func fail(s *hedge.Scheduler) {
	begin(context.Background(), s, hedge.Off()).End(hcall.Completion{Err: status.Error(codes.Unavailable, "")})
}

// failHedge lets a hedge fail.
func failHedge(code codes.Code) func(*hedge.Scheduler) {
	return func(s *hedge.Scheduler) {
		_, _ = hedge.Do(context.Background(), s, target, method, func(ctx context.Context) (int, error) {
			if isHedge(ctx) {
				return 0, status.Error(code, "")
			}
			return hedgetest.Taking(20 * ms)(ctx)
		})
	}
}

// spend empties the target's budget.
func spend(s *hedge.Scheduler) {
	for send := true; send; {
		send, _ = hedgetest.Admit(begin(context.Background(), s), 1)
	}
}

// hundred admits a hedge for each of a hundred calls.
func hundred(s *hedge.Scheduler) {
	for range 100 {
		hedgetest.Admit(begin(context.Background(), s), 1)
	}
}

// The median and the delay are 20 ms: a hedge has an answer to be expected 40 ms into the call.
func TestRule10_DeadlineTooNear(t *testing.T) {
	for timeout, want := range map[time.Duration]stats.Counts{
		35 * ms: {Calls: 101, Failed: 1, Warmup: 20, DeadlineNear: 1},
		45 * ms: {Calls: 101, Failed: 1, FailedHedged: 1, Warmup: 20, Hedged: 1, Hedges: 1}} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
			for range 100 {
				hedgetest.Call(t, s, target, method, 20*ms)
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := hedge.Do(ctx, s, target, method, hedgetest.Taking(time.Second))
			if got := s.Stats(); status.Code(err) != codes.DeadlineExceeded || got != want {
				t.Errorf("timeout %v: %v, %+v, want %+v", timeout, err, got, want)
			}
		})
	}
}

// Primaries take 20 ms, or stall while hedges elsewhere are learned. Each call but the first has a
// deadline, and its hedge is due after about 20 ms.
func TestRule10_DeadlineTooNearElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name    string
		there   time.Duration // latency of hedges
		learned int           // hedges before the call
		timeout time.Duration
		idle    time.Duration // before the call
		sent    bool
	}{
		{name: "unknown, and too near by the primaries", timeout: 35 * ms},
		{name: "unknown, and long enough", timeout: 45 * ms, sent: true},
		{name: "known to be slow", there: 100 * ms, learned: 20, timeout: 115 * ms},
		{name: "slow, and long enough", there: 100 * ms, learned: 20, timeout: 125 * ms, sent: true},
		{name: "known to be fast", there: 5 * ms, learned: 20, timeout: 30 * ms, sent: true},
		{name: "never answered in time", there: time.Second, learned: 20, timeout: 60 * ms},
		{name: "slow a window ago", there: 100 * ms, learned: 20, timeout: 115 * ms, idle: time.Minute, sent: true},
	} {
		for name, trigger := range map[string]hedge.Trigger{"Auto": hedge.Auto(), "Fixed": hedge.Fixed(21 * ms)} {
			hedgetest.Run(t, tc.name+", "+name, func(t *testing.T) {
				s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1), hedge.WithTrigger(trigger))
				call := func(timeout, takes time.Duration) stats.Counts {
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					before := s.Stats()
					hedge.Do(ctx, s, target, method, hedgetest.Taking(takes), hedgetest.Taking(tc.there))
					after := s.Stats()
					return stats.Counts{Hedges: after.Hedges - before.Hedges, DeadlineNear: after.DeadlineNear - before.DeadlineNear}
				}
				for range 100 {
					call(time.Second, 20*ms)
				}
				for range tc.learned {
					call(max(150*ms, tc.timeout), time.Hour)
				}
				time.Sleep(tc.idle)
				want := stats.Counts{DeadlineNear: 1}
				if tc.sent {
					want = stats.Counts{Hedges: 1}
				}
				if got := call(tc.timeout, time.Hour); got != want {
					t.Errorf("%d hedges, and %d not sent by the deadline, want %d, and %d", got.Hedges, got.DeadlineNear,
						want.Hedges, want.DeadlineNear)
				}
			})
		}
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
			if got := s.Stats(); got != want || c.Hedged != (want.Warmup > 0) {
				t.Errorf("%q: hedged %v, %+v, want %+v", name, c.Hedged, got, want)
			}
		}
	}
}

func TestPreviousAttempts(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "4": 4, "1 2": 2, "": 0, "-1": 0, "many": 0,
		"99999999999999999999": 0} {
		md := metadata.MD{"grpc-previous-rpc-attempts": strings.Fields(value)}
		if got := hedge.PreviousAttempts(metadata.NewIncomingContext(t.Context(), md)); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
}
