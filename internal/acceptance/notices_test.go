package acceptance_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

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
					`removed="[WithReadOnlyMethods(\"/shop.Catalog/*\")]"`,
				`level=WARN msg="pattern unused" pattern=/shop.Catlog/*`}},
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

// TestLogger_UnusedPatterns has a pattern that nothing matches since New.
func TestLogger_UnusedPatterns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logged
		s := hedgetest.New(t, hedge.WithReadOnlyMethods("/shop.Catalog/*", "/shop.Items/Gte"), l.option())
		for range 30 {
			hedgetest.Call(t, s, target, "/shop.Catalog/Get", ms)
			hedgetest.Call(t, s, target, "/shop.Items/Get", ms)
			time.Sleep(time.Minute)
		}
		const want = `level=WARN msg="pattern unused" pattern=/shop.Items/Gte`
		if got := strings.Join(l.lines(), "\n"); got != want {
			t.Errorf("logged\n%s\nwant\n%s", got, want)
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
		if lines := l.lines(); len(lines) < 6 || len(lines) > 16 {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}
