package acceptance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// logged has the records of a scheduler's log, without times.
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
	return hedge.WithLogger(
		slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
}

// TestLogger_IsRateLimited exhausts the budgets of two hundred targets at once, three times.
func TestLogger_IsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(0.001),
			hedge.WithMaxHedges(1), l.option())
		for n := range 601 {
			var calls sync.WaitGroup
			for range 11 { // a bucket begins with one token
				calls.Go(func() { hedgetest.Call(t, s, fmt.Sprint(n%200, n/600), method, 12*ms) })
			}
			calls.Wait()
			if n%200 == 199 {
				time.Sleep(time.Minute)
			}
		}
		if lines := l.lines(); len(lines) != 21 ||
			!strings.HasSuffix(lines[20], `target="0 1" method=/pkg.Svc/Get suppressed=190`) {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// TestLogger_HeldBack lets a throttle, the guard, a limit of resets and the budget hold hedges
// back, which is logged once.
func TestLogger_HeldBack(t *testing.T) {
	down, quota := errors.New("down"), status.Error(codes.ResourceExhausted, "quota")
	for _, tc := range []struct {
		option         hedge.Option
		primary, hedge error
		calls          int
		begins         string
	}{
		{option: hedgetest.Throttle(4, 0.5), primary: down, hedge: down, calls: 10, begins: "hedge throttle active"},
		{option: hedge.WithGuard(true), hedge: quota, calls: 60, begins: "hedge guard active"},
		{option: hedge.WithBudgetPercent(10), calls: 15, begins: "hedge budget exhausted"},
		{option: hedge.WithHedgeLimit(4, time.Minute), calls: 10, begins: "hedge reset limit reached"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l logged
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1),
				hedge.WithBudgetPercent(400), tc.option, l.option())
			unary := interceptor.Unary(s)
			do := func(d time.Duration, primary, hedge error) {
				_ = unary(t.Context(), method, new(testpb.Request), new(testpb.Reply), nil,
					func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
						if simulation.AttemptOf(ctx) > 0 {
							return hedge
						}
						if _, err := hedgetest.Taking(d)(ctx); err != nil {
							return err
						}
						return primary
					})
			}
			for range tc.calls {
				do(12*ms, tc.primary, tc.hedge)
			}
			want := fmt.Sprintf(`level=WARN msg=%q target="" method=/pkg.Svc/Get`, tc.begins)
			if lines := l.lines(); len(lines) != 1 || lines[0] != want {
				t.Errorf("logged\n%s\nwant\n%s", strings.Join(lines, "\n"), want)
			}
		})
	}
}

func TestLogger_SilentBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		var stalled atomic.Int64
		usually := testserver.DistributionT(t, "straggler")
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3, Seed: 1, CountsOnly: true,
			Script: func(a testserver.Attempt) testserver.Plan {
				if a.Backend > 0 && int64(a.Backend) <= stalled.Load() {
					return testserver.Plan{Ending: testserver.Hang}
				}
				return testserver.Plan{Delay: a.Draw(usually)}
			}})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(hedgetest.All(t, hedge.WithGuard(false), l.option())),
			grpc.WithDefaultServiceConfig(
				`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`))...)
		testserver.ConnectT(t, conn)
		for n := range 600 { // it is stalled for one and a half minutes
			stalled.Store([]int64{0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0}[n/50])
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = testpb.NewTestServiceClient(conn).Unary(ctx, &testpb.Request{})
			cancel()
			time.Sleep(600 * ms)
		}
		var got []string
		for _, line := range l.lines() {
			if strings.Contains(line, "backend") {
				got = append(got, strings.ReplaceAll(line, " target="+cluster.Target(), ""))
			}
		}
		want := []string{`level=WARN msg="backend silent" backend=` + cluster.Address(1),
			`level=WARN msg="backend silent" backend=` + cluster.Address(2)}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestLogger_NothingSelected: if none of a target's first 100 calls is selected, the log reports it
// once, with the option to use. There is no record if a method is selected, or if the options
// exclude all methods explicitly.
func TestLogger_NothingSelected(t *testing.T) {
	const none = `level=WARN msg="no method selected" target=there reason="no `
	const ten = `methods="[/v1.Svc/M00 /v1.Svc/M01 /v1.Svc/M02 /v1.Svc/M03 /v1.Svc/M04 ` +
		`/v1.Svc/M05 /v1.Svc/M06 /v1.Svc/M07 /v1.Svc/M08 /v1.Svc/M09]" more=40`
	for _, tc := range []struct {
		name    string
		options []hedge.Option
		first   func(*hedge.Scheduler)
		calls   int
		want    string
	}{
		{name: "no idempotency_level", options: with{hedge.WithIdempotentOnly()}, calls: 200,
			want: none + `option selects a method of the first 100 calls: see WithReadOnlyMethods" ` + ten},
		{name: "by service config", options: with{hedge.WithServiceConfig(`{}`)}, calls: 100,
			want: none + `service config has a hedgingPolicy for a method of the first 100 calls" ` + ten},
		{name: "99 calls", options: with{hedge.WithIdempotentOnly()}, calls: 99},
		{name: "one call of a method that only reads, while hedging is paused",
			options: with{hedge.WithReadOnlyMethods("/v1.Svc/M00")}, first: (*hedge.Scheduler).Pause, calls: 200,
			want: `level=INFO msg="hedging paused" by=Pause`},
		{name: "off by a rule", options: with{hedge.WithAllMethods(),
			hedge.WithTargetOptions("there", hedge.WithOff(true))}, calls: 200},
		{name: "hedged by the option After", options: with{hedge.WithReadOnlyMethods("/a/Never")},
			first: func(s *hedge.Scheduler) {
				ctx := hedge.NewContext(t.Context(), hedge.After(time.Hour))
				_, _ = hedge.Do(ctx, s, "there", "/v1.Svc/Get", hedgetest.Taking(0))
			}, calls: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l logged
			s := hedgetest.New(t, append(tc.options, l.option())...)
			if tc.first != nil {
				tc.first(s)
			}
			for n := range tc.calls {
				hedgetest.Call(t, s, "there", fmt.Sprintf("/v1.Svc/M%02d", n/2%100), 0)
			}
			if got := strings.Join(l.lines(), "\n"); got != tc.want {
				t.Errorf("logged\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestLogger_Changes pauses, resumes and updates a scheduler. Each change is logged once, with what
// changed, and so is a refused update.
func TestLogger_Changes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		reads := hedge.WithReadOnlyMethods
		s := hedgetest.New(t, reads("/shop.Catalog/*"), l.option())
		hedgetest.Call(t, s, target, "/shop.Catalog/Get", ms)
		limit := func(n int) hedge.Option {
			return hedge.WithMethodOptions("/shop.Catalog/Get", hedge.WithMaxHedges(n), hedge.WithMinDelay(ms))
		}
		update := func(opts ...hedge.Option) func() { return func() { _ = s.Update(opts...) } }
		for _, tc := range []struct {
			name   string
			change func()
			want   []string
		}{
			{"pause", s.Pause, []string{`level=INFO msg="hedging paused" by=Pause`}},
			{"pause again", s.Pause, nil},
			{"resume", s.Resume, []string{`level=INFO msg="hedging resumed"`}},
			{"resume again", s.Resume, nil},
			{"no change", update(reads("/shop.Catalog/*")), nil},
			{"a wrong pattern", update(reads("/shop.Catlog/*")), []string{
				`level=INFO msg="options updated" added="[WithReadOnlyMethods(\"/shop.Catlog/*\")]" ` +
					`removed="[WithReadOnlyMethods(\"/shop.Catalog/*\")]"`}},
			{"the same", update(reads("/shop.Catlog/*")), nil},
			{"other options", update(reads("/shop.Catlog/*"), hedge.WithOff(true), hedge.WithBudgetPercent(5)), []string{
				`level=INFO msg="options updated" added="[WithOff(true) WithBudgetPercent(5)]"`}},
			{"refused", update(reads("/shop.Catlog/*"), hedge.WithWindow(time.Hour)), []string{
				`level=ERROR msg="update refused" error="hedge: Update: WithWindow(1h0m0s): must be 30s, as in the first call"`}},
			{"refused again", update(reads("/shop.Catlog/*"), hedge.WithWindow(time.Hour)), nil},
			{"out of range", update(reads("/shop.Catlog/*"), hedge.WithMaxHedges(-1)), []string{
				`level=ERROR msg="update refused" error="hedge: WithMaxHedges(-1): must be 0 to 4"`}},
			{"on", update(reads("/shop.Catlog/*")), []string{
				`level=INFO msg="options updated" removed="[WithOff(true) WithBudgetPercent(5)]"`}},
			{"off, and refused", update(hedge.WithOff(true), hedge.WithMaxHedges(-1)), []string{
				`level=ERROR msg="update refused" error="hedge: WithMaxHedges(-1): must be 0 to 4"`,
				`level=INFO msg="options updated" added=[WithOff(true)]`}},
			{"off, and refused again", update(hedge.WithOff(true), hedge.WithMaxHedges(-1)), nil},
			{"another rule", update(reads("/shop.Catlog/*"), hedge.WithOff(true), limit(2)), []string{
				`level=INFO msg="options updated" ` +
					`added="[WithMethodOptions(\"/shop.Catalog/Get\", WithMaxHedges(2), WithMinDelay(1ms))]"`}},
		} {
			before := len(l.lines())
			tc.change()
			if got := l.lines()[before:]; !slices.Equal(got, tc.want) {
				t.Errorf("%s: logged\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestLogger_AStateThatComesAndGoes exhausts a budget in each second minute of two hours.
func TestLogger_AStateThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.Fixed(t, 10*ms, hedge.WithBudgetPercent(1), hedge.WithMaxHedges(1), l.option())
		for minute := range 120 {
			for range 60 {
				takes := 5 * ms
				if minute%2 == 0 {
					takes = 30 * ms
				}
				hedgetest.Call(t, s, target, method, takes)
				time.Sleep(time.Second - takes)
			}
		}
		if lines := l.lines(); len(lines) < 3 || len(lines) > 8 {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}
