package hedge_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

type classKey struct{}

// classNamed returns a class function of its own, which takes the name from the context and puts something before it.
func classNamed(prefix string) hedge.Option {
	return hedge.WithClass(func(ctx context.Context, _ string, _ any) string {
		name, _ := ctx.Value(classKey{}).(string)
		return prefix + name
	})
}

// classCall makes one call of a class, and returns its delay; 0 while there is none.
func classCall(t *testing.T, s *hedge.Scheduler, name string, took time.Duration) time.Duration {
	c := hcall.Begin(registry.Of(s), context.WithValue(t.Context(), classKey{}, name), target, method, nil)
	c.Inspect(nil)
	plan := c.Plan()
	time.Sleep(took)
	c.End(hcall.End{})
	return plan.Delay
}

// In TestClass_AfterAnUpdate a method learns of twenty classes, and the configuration is updated. The classes of another function
// get places of their own. What was learned of a class that both functions name stays, and so does all with the same function.
func TestClass_AfterAnUpdate(t *testing.T) {
	options := func(class hedge.Option) []hedge.Option {
		return []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Percentile(0.5)), class}
	}
	first := classNamed("")
	for _, tc := range []struct {
		name        string
		class       hedge.Option
		first, then time.Duration // delays of class 0, whose calls take 1 ms: at once after the update, and later
		classes     int           // with calls, after all
	}{
		{"the same function", first, ms, ms, 17},
		{"a function with other names", classNamed("new "), 101 * ms, ms, 2},
		{"a function with the same names", classNamed(""), ms, ms, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hedgetest.All(t, options(first)...)
				for i := range 20 * 30 { // of the method, most calls take 101 ms
					took := 101 * ms
					if i%20 == 0 {
						took = ms
					}
					classCall(t, s, fmt.Sprint(i%20), took)
				}
				if err := s.Update(options(tc.class)...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if got := classCall(t, s, "0", ms); !within(got, tc.first, 0.03) {
					t.Errorf("after the update the delay is %v, want %v", got, tc.first)
				}
				for range 100 {
					classCall(t, s, "0", ms)
					classCall(t, s, "1", 101*ms)
				}
				if got := classCall(t, s, "0", ms); !within(got, tc.then, 0.03) {
					t.Errorf("later the delay is %v, want %v", got, tc.then)
				}
				if rows := s.Targets()[0].Classes; len(rows) != tc.classes {
					t.Errorf("%d classes, want %d", len(rows), tc.classes)
				}
			})
		})
	}
}

// In TestClass_OfACallInFlight a call begins under one class function and is inspected under the next. It takes no place there,
// and its class is the one that it would have had.
func TestClass_OfACallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, classNamed("a"))
		classCall(t, s, "", ms)
		known := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
		unknown := hcall.Begin(registry.Of(s), context.WithValue(t.Context(), classKey{}, "unknown"), target, method, nil)
		if err := s.Update(hedge.WithAllMethods(), classNamed("b")); err != nil {
			t.Fatal(err)
		}
		classCall(t, s, "", ms)
		for _, c := range []*hcall.Call{&known, &unknown} {
			c.Inspect(nil)
			c.End(hcall.End{})
		}
		if rows := s.Targets()[0].Classes; len(rows) != 1 || rows[0].Class != "b" {
			t.Errorf("%+v, want class b alone", rows)
		}
	})
}
