package acceptance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

func TestClass_AtMostSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := hedgetest.All(t, hedge.WithClass(func(context.Context, string, any) string {
			n++
			return fmt.Sprintf("%03d%s", n%100, strings.Repeat("x", 1000))
		}))
		for range 1000 {
			hedgetest.Call(t, s, target, method, ms)
		}
		classes := s.Methods()[0].Classes
		if len(classes) != 17 || classes[0].Class != "(other)" {
			t.Errorf("%d classes, the first %.20q", len(classes), classes[0].Class)
		}
		for _, c := range classes {
			if len(c.Class) > 64 {
				t.Errorf("the name of a class has %d bytes", len(c.Class))
			}
		}
	})
}

// TestClass_EachHasItsOwnDelay has two classes of which one is ten times slower, and one that is new.
func TestClass_EachHasItsOwnDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.5)), hedge.WithClass(func(ctx context.Context, name string, _ any) string {
			if name != method {
				t.Errorf("the method is %q", name)
			}
			class, _ := ctx.Value(key{}).(string)
			return class
		}))
		delay := func(class string) time.Duration {
			c := hcall.Begin(registry.Of(s), context.WithValue(t.Context(), key{}, class), target, method, nil)
			c.Inspect(nil)
			return c.Plan().Delay
		}
		for range 400 { // in turn, so that it is no change of distribution
			for _, of := range []struct {
				class string
				took  time.Duration
			}{{"fast", 5 * ms}, {"slow", 50 * ms}, {"", 20 * ms}} {
				c := hcall.Begin(registry.Of(s), context.WithValue(t.Context(), key{}, of.class), target, method, nil)
				c.Inspect(nil)
				time.Sleep(of.took)
				c.End(hcall.End{})
			}
		}
		time.Sleep(time.Second)
		for class, want := range map[string]time.Duration{"fast": 5 * ms, "slow": 50 * ms, "": 20 * ms, "new": 20 * ms} {
			if got := delay(class); !within(got, want, 0.03) {
				t.Errorf("the delay of class %q is %v, want %v", class, got, want)
			}
		}
	})
}

// TestClass_LeavesOthersApart has requests without a class among such as have one, and calls that are switched off: neither the
// ones nor the others decide when those without a class are hedged.
func TestClass_LeavesOthersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.9)), hedge.WithClass(func(ctx context.Context, _ string, _ any) string {
			class, _ := ctx.Value(key{}).(string)
			return class
		}))
		for range 400 {
			for class, took := range map[string]time.Duration{"": 5 * ms, "slow": 50 * ms, "off": time.Second} {
				var opts []grpc.CallOption
				if class == "off" {
					class, opts = "", append(opts, hedge.Off())
				}
				c := hcall.Begin(registry.Of(s), context.WithValue(t.Context(), key{}, class), target, method, nil, opts...)
				c.Inspect(nil)
				time.Sleep(took)
				c.End(hcall.End{})
			}
		}
		c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
		c.Inspect(nil)
		if got := c.Plan().Delay; !within(got, 5*ms, 0.03) {
			t.Errorf("the delay of calls without a class is %v, want 5ms", got)
		}
		if row := s.Methods()[0]; row.P99 > 60*ms {
			t.Errorf("calls that are switched off have taught that p99 is %v", row.P99)
		}
	})
}

func TestBySize(t *testing.T) {
	for size, want := range map[int]string{0: "<1B", 1: "<4B", 10: "<16B", 14: "<64B", 61: "<64B", 62: "<256B", 1000: "<1024B", 1022: "<4096B"} {
		m := wrapperspb.Bytes(make([]byte, size)) // with two bytes more
		if got := hedge.BySize(t.Context(), method, m); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
	if got := hedge.BySize(t.Context(), method, "text"); got != "" {
		t.Errorf("a string has the class %q", got)
	}
}

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
				if rows := s.Methods()[0].Classes; len(rows) != tc.classes {
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
		if rows := s.Methods()[0].Classes; len(rows) != 1 || rows[0].Class != "b" {
			t.Errorf("%+v, want class b alone", rows)
		}
	})
}
