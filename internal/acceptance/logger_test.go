package acceptance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// logged is what a scheduler has logged, without times.
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.out.String(), func(r rune) bool { return r == '\n' })
}

func (l *logged) option() hedge.Option {
	return hedge.WithLogger(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
}

// TestLogger_BudgetRunsDry lets all calls be slow for two minutes, and then be fast.
func TestLogger_BudgetRunsDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(1), l.option())
		do := func(d time.Duration) {
			_, _ = hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) { return 0, wait(ctx, d) })
		}
		for range 2000 {
			do(60 * ms)
		}
		for range 2000 {
			do(5 * ms)
		}
		do(60 * ms)
		lines := l.lines()
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "latencies changed") })
		if len(lines) != 2 || !strings.HasPrefix(lines[0], `level=WARN msg="hedging budget ran dry" target=`) ||
			!strings.HasPrefix(lines[1], `level=INFO msg="hedging budget pays again" target=`) || !strings.Contains(lines[1], "held_back=") {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestLogger_IsRateLimited lets the budgets of two hundred targets run dry at once.
func TestLogger_IsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(0.001), hedge.WithMaxHedges(1), l.option())
		dry := func(name string) {
			for range 2 { // a bucket begins with one token
				_, _ = hedge.Do(t.Context(), s, name, method, func(ctx context.Context) (int, error) { return 0, wait(ctx, 12*ms) })
			}
		}
		for range 3 {
			for n := range 200 {
				dry(fmt.Sprint(n))
			}
			time.Sleep(time.Minute)
		}
		dry("another")
		if lines := l.lines(); len(lines) != 11 || !strings.HasSuffix(lines[10], "target=another method=/pkg.Svc/Get suppressed=190") {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// TestLogger_Changes lets all calls become ten times slower.
func TestLogger_Changes(t *testing.T) {
	longtest.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		var l logged
		var mu sync.Mutex
		distributions := 0
		s := hedgetest.All(t, l.option(), hedge.WithTrace(&hedge.Trace{
			DistributionChanged: func(stats.DistributionChanged) {
				mu.Lock()
				defer mu.Unlock()
				distributions++
			},
		}))
		random := rand.New(rand.NewPCG(1, 1))
		calls := func(n int, base time.Duration) {
			for range n {
				d := base + time.Duration(random.ExpFloat64()*float64(base)/50)
				_, _ = hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) { return 0, wait(ctx, d) })
				synctest.Wait()
			}
		}
		calls(8000, 5*ms)
		calls(2000, 50*ms)
		mu.Lock()
		defer mu.Unlock()
		text := strings.Join(l.lines(), "\n")
		if distributions == 0 || strings.Count(text, "latencies changed") != distributions {
			t.Errorf("%d changes of distribution:\n%s", distributions, text)
		}
	})
}

// TestLogger_HeldBack lets a throttle, the guard and a limit of resets hold hedges back, and then not.
func TestLogger_HeldBack(t *testing.T) {
	down, quota := errors.New("down"), status.Error(codes.ResourceExhausted, "quota")
	for _, tc := range []struct {
		option         hedge.Option
		primary, hedge error
		calls          int
		begins, ends   string
		after          time.Duration
	}{
		{hedgetest.Throttle(4, 0.5), down, down, 10, "hedging throttled", "hedging no longer throttled", 0},
		{hedge.WithGuard(true), nil, quota, 60, "guard holds hedges back", "guard lets hedges pass again", 20 * time.Minute},
		{hedge.WithResetLimit(4, time.Minute), nil, nil, 10, "no resets left for hedges", "resets left for hedges again", 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l logged
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400), tc.option, l.option())
			unary := interceptor.Unary(s)
			do := func(d time.Duration, primary, hedge error) {
				_ = unary(t.Context(), method, new(testpb.Request), new(testpb.Reply), nil,
					func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
						if attemptOf(ctx) > 0 {
							return hedge
						}
						if err := wait(ctx, d); err != nil {
							return err
						}
						return primary
					})
			}
			for range tc.calls {
				do(12*ms, tc.primary, tc.hedge)
			}
			time.Sleep(tc.after)
			for range 10 {
				do(5*ms, nil, nil)
			}
			do(12*ms, nil, nil)
			lines := l.lines()
			if len(lines) != 2 || lines[0] != fmt.Sprintf(`level=WARN msg=%q target="" method=/pkg.Svc/Get`, tc.begins) ||
				!strings.HasPrefix(lines[1], fmt.Sprintf(`level=INFO msg=%q target="" held_back=`, tc.ends)) {
				t.Errorf("%s: %d lines:\n%s", tc.begins, len(lines), strings.Join(lines, "\n"))
			}
		})
	}
}

// TestLogger_SilentBackend lets one of three backends stand still for a while.
func TestLogger_SilentBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		var still atomic.Bool
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3, Seed: 1, CountsOnly: true, Script: func(a testserver.Attempt) testserver.Plan {
			if still.Load() && a.Backend == 1 {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{Delay: a.Draw(testserver.DistributionT(t, "straggler"))}
		}})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(hedgetest.All(t, hedge.WithGuard(false), l.option())),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))...)
		testserver.ConnectT(t, conn)
		for n := range 4000 { // it stands still for three minutes
			still.Store(1000 <= n && n < 2000)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = testpb.NewTestServiceClient(conn).Unary(ctx, &testpb.Request{})
			cancel()
			time.Sleep(180 * ms)
		}
		want := []string{fmt.Sprintf(`level=WARN msg="backend is silent" target=%s backend=%s`, cluster.Target(), cluster.Address(1)),
			fmt.Sprintf(`level=INFO msg="no backend is silent" target=%s`, cluster.Target())}
		if lines := slices.DeleteFunc(l.lines(), func(line string) bool { return !strings.Contains(line, "silent") }); !slices.Equal(lines, want) {
			t.Errorf("%d lines:\n%s\nwant\n%s", len(lines), strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestWithLogger_Nil(t *testing.T) {
	for name, option := range map[string]hedge.Option{"WithLogger(nil)": hedge.WithLogger(nil), "WithTrace(nil)": hedge.WithTrace(nil)} {
		if _, err := hedge.New(hedge.WithAllMethods(), option); err == nil || !strings.HasPrefix(err.Error(), "hedge: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLogger_NothingSelectedButHedged hedges calls by the call option After, of a method that no option selects.
func TestLogger_NothingSelectedButHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := hedgetest.New(t, hedge.WithReadOnlyMethods("/a/Never"), hedge.WithBudgetPercent(100), hedge.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
		invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		for range 150 {
			if err := interceptor.Unary(s)(t.Context(), "/a/Get", new(testpb.Request), new(testpb.Reply), nil, invoke, hedge.After(5*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
		if st := s.Stats(); strings.Contains(out.String(), "none of the first") {
			t.Errorf("%d hedges were sent, and the log says: %s", st.Hedges, out.String())
		}
	})
}

// noneSelected is how the line begins that says so.
const noneSelected = `level=WARN msg="none of the first 100 calls was selected for hedging: ` +
	`name the methods that only read with WithReadOnlyMethods"`

// callOnce makes calls that end at once.
func callOnce(t *testing.T, s *hedge.Scheduler, target, method string, n int) {
	t.Helper()
	for range n {
		_, err := hedge.Do(t.Context(), s, target, method, func(context.Context) (int, error) { return 0, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogger_NothingSelected calls methods of an API that sets no idempotency_level.
func TestLogger_NothingSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.New(t, hedge.WithIdempotentOnly(), l.option())
		callOnce(t, s, "spicedb", "/v1.Permissions/Check", 60)
		callOnce(t, s, "spicedb", "/v1.Permissions/Expand", 39)
		if lines := l.lines(); len(lines) != 0 {
			t.Errorf("after 99 calls: %v", lines)
		}
		callOnce(t, s, "spicedb", "/v1.Permissions/Check", 1000)
		want := noneSelected + ` target=spicedb methods="[/v1.Permissions/Check /v1.Permissions/Expand]"`
		if lines := l.lines(); len(lines) != 1 || lines[0] != want {
			t.Errorf("%d lines:\n%s\nwant\n%s", len(lines), strings.Join(lines, "\n"), want)
		}
	})
}

// TestLogger_NothingSelectedNamesFew calls more methods than a line has room for.
func TestLogger_NothingSelectedNamesFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.New(t, hedge.WithIdempotentOnly(), l.option())
		for n := range 100 {
			callOnce(t, s, "openfga", fmt.Sprintf("/v1.Svc/M%02d", n), 1)
		}
		lines := l.lines()
		if len(lines) != 1 || strings.Count(lines[0], "/v1.Svc/") != 10 || !strings.HasSuffix(lines[0], ` more=90`) {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// TestLogger_SomethingSelected expects silence where a method is selected, or somebody has said that none is to be.
func TestLogger_SomethingSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name    string
			options []hedge.Option
			before  func(*hedge.Scheduler)
		}{
			{"one call of a method that only reads", []hedge.Option{hedge.WithReadOnlyMethods("/v1.Svc/Get")}, nil},
			{"the same while hedging is paused", []hedge.Option{hedge.WithReadOnlyMethods("/v1.Svc/Get")}, (*hedge.Scheduler).Pause},
			{"off by a rule", []hedge.Option{hedge.WithAllMethods(), hedge.WithTargetOptions("spanner", hedge.WithOff(true))}, nil},
		} {
			var l logged
			s := hedgetest.New(t, append(tc.options, l.option())...)
			if tc.before != nil {
				tc.before(s)
			}
			callOnce(t, s, "spanner", "/v1.Svc/Get", 1)
			s.Resume()
			callOnce(t, s, "spanner", "/v1.Svc/Put", 1000)
			if lines := l.lines(); len(lines) != 0 {
				t.Errorf("%s: %s", tc.name, strings.Join(lines, "\n"))
			}
		}
	})
}

// TestLogger_NothingSelectedByServiceConfig names the option that is in force.
func TestLogger_NothingSelectedByServiceConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.New(t, hedge.WithServiceConfig(`{}`), l.option())
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() { callOnce(t, s, "thanos", "/thanos.Store/Series", 50) })
		}
		callers.Wait()
		const want = "for hedging: no service config has a hedgingPolicy for their methods\" target=thanos methods=[/thanos.Store/Series]"
		if lines := l.lines(); len(lines) != 1 || !strings.HasSuffix(lines[0], want) {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}
