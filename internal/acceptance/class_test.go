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

// TestClass_AtMostSixteen names a hundred classes, and has a call without a name before most of
// them: there are sixteen and the one of all others, which does not count. Then all but one of the
// sixteen are called for half an hour, which makes room for one.
func TestClass_AtMostSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := hedgetest.All(t, hedge.WithClass(func(context.Context, string, any) string {
			if n++; n == 2 {
				return ""
			}
			return fmt.Sprintf("%03d%s", n%100, strings.Repeat("x", 1000))
		}))
		names := func() (names []string) {
			for _, c := range s.Methods()[0].Classes {
				names = append(names, c.Class)
			}
			return names
		}
		for range 1000 {
			hedgetest.Call(t, s, target, method, ms)
		}
		if got := names(); len(got) != 17 || got[0] != "(other)" || len(got[1]) != 64 || got[1][:3] != "001" {
			t.Errorf("%d classes, the first %.20q", len(got), got)
		}
		for range 30 {
			time.Sleep(time.Minute)
			for n = 2; n < 20; {
				hedgetest.Call(t, s, target, method, ms)
			}
		}
		if got := names(); len(got) < 17 || got[1][:3] != "003" || got[16][:3] < "018" {
			t.Errorf("%d classes: %.5q", len(got), got)
		}
	})
}

// TestClass_EachHasItsOwnDelay has a fast class, one ten times slower, a new class, requests
// without a class, and calls that are switched off, which are not learned.
func TestClass_EachHasItsOwnDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.5)),
			hedge.WithClass(func(ctx context.Context, name string, _ any) string {
				if name != method {
					t.Errorf("the method is %q", name)
				}
				class, _ := ctx.Value(key{}).(string)
				return class
			}))
		delay := func(class string) time.Duration {
			c := hcall.Begin((*registry.Registry)(s), context.WithValue(t.Context(), key{}, class), target, method, nil)
			c.Inspect(nil, nil, nil)
			return c.Plan().Delay
		}
		for range 400 { // in turn, so that it is no change of distribution
			for _, of := range []struct {
				class string
				took  time.Duration
				opts  []grpc.CallOption
			}{{"fast", 5 * ms, nil}, {"slow", 50 * ms, nil}, {"", 20 * ms, nil}, {"", time.Second,
				[]grpc.CallOption{hedge.Off()}}} {
				ctx := context.WithValue(t.Context(), key{}, of.class)
				c := hcall.Begin((*registry.Registry)(s), ctx, target, method, nil, of.opts...)
				c.Inspect(nil, nil, nil)
				time.Sleep(of.took)
				c.End(hcall.Ending{})
			}
		}
		time.Sleep(time.Second)
		for class, want := range map[string]time.Duration{"fast": 5 * ms, "slow": 50 * ms, "": 20 * ms, "new": 20 * ms} {
			if got := delay(class); !within(got, want, 0.03) {
				t.Errorf("the delay of class %q is %v, want %v", class, got, want)
			}
		}
		if row := s.Methods()[0]; row.P99 > 60*ms {
			t.Errorf("calls that are switched off have taught that p99 is %v", row.P99)
		}
	})
}

func TestBySize(t *testing.T) {
	for size, want := range map[int]string{0: "<1B", 1: "<4B", 10: "<16B", 14: "<64B", 61: "<64B", 62: "<256B",
		1000: "<1024B", 1022: "<4096B"} {
		m := wrapperspb.Bytes(make([]byte, size)) // with two bytes more
		if got := hedge.BySize(t.Context(), method, m); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
	if got := hedge.BySize(t.Context(), method, "text"); got != "" {
		t.Errorf("a string has the class %q", got)
	}
}

// In TestClass_IdleOnesMakeRoom a method has twenty classes, one of them in use, also after an
// update with another function that names it. New classes get places once the other classes have
// been idle for 15 minutes.
func TestClass_IdleOnesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		options := func() []hedge.Option { // a function of its own each time
			return []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Percentile(0.5)),
				hedge.WithClass(func(ctx context.Context, _ string, _ any) string { return fmt.Sprint(ctx.Value(key{})) })}
		}
		s := hedgetest.All(t, options()...)
		delay := func(class int, took time.Duration) time.Duration {
			c := hcall.Begin((*registry.Registry)(s), context.WithValue(t.Context(), key{}, class), target, method, nil)
			c.Inspect(nil, nil, nil)
			plan := c.Plan()
			time.Sleep(took)
			c.End(hcall.Ending{})
			return plan.Delay
		}
		for i := range 20 * 30 { // of the method, most calls take 101 ms
			took := 101 * ms
			if i%20 == 0 {
				took = ms
			}
			delay(i%20, took)
		}
		hedgetest.Update(t, s, options()...)
		names := func() (names string) {
			for _, c := range s.Methods()[0].Classes {
				names += c.Class + " "
			}
			return names
		}
		for minutes := range 20 {
			time.Sleep(time.Minute)
			if got := delay(0, ms); !within(got, ms, 0.03) {
				t.Errorf("after %d minutes the delay of class 0 is %v, want 1ms", minutes, got)
			}
			delay(100, ms)
			switch got := names(); {
			case !strings.Contains(" "+got, " 0 "):
				t.Errorf("after %d minutes class 0 is gone: %s", minutes, got)
			case minutes < 13 && (len(strings.Fields(got)) != 17 || strings.Contains(got, "100")):
				t.Errorf("after %d minutes there are the classes %s", minutes, got)
			case minutes > 16 && got != "(other) 0 100 " && got != "0 100 ":
				t.Errorf("after %d minutes there are the classes %s, want 0 and 100", minutes, got)
			}
		}
	})
}
