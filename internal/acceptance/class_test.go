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
// them: there are sixteen and the one of all others, which does not count. Then class 0 alone is
// called, also after an update with another function that names it: its delay is its own, and a new
// class gets a place once the others have been idle for 15 minutes.
func TestClass_AtMostSixteen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		options := func() []hedge.Option { // a function of its own each time
			return []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Percentile(0.5)),
				hedge.WithClass(func(ctx context.Context, _ string, _ any) string {
					if class := ctx.Value(key{}).(int); class >= 0 {
						return fmt.Sprintf("%03d%s", class, strings.Repeat("x", 1000))
					}
					return ""
				})}
		}
		s := hedgetest.New(t, options()...)
		delay := func(class int, took time.Duration) time.Duration {
			c := hcall.Begin((*registry.Registry)(s), context.WithValue(t.Context(), key{}, class), target, method, nil)
			c.Inspect(nil, nil, nil)
			plan := c.Plan()
			time.Sleep(took)
			c.End(hcall.Ending{})
			return plan.Delay
		}
		names := func() (names []string) {
			for _, c := range s.Methods()[0].Classes {
				names = append(names, c.Class[:min(len(c.Class), 7)])
				if len(c.Class) > 64 {
					t.Errorf("the name has %d bytes", len(c.Class))
				}
			}
			return names
		}
		for class := range 3000 { // of the method, most calls take 101 ms
			if class == 1 {
				delay(-1, 101*ms)
			}
			delay(class%100, []time.Duration{ms, 101 * ms}[min(class%100, 1)])
		}
		if got := names(); len(got) != 17 || got[0] != "(other)" || got[1] != "000xxxx" || got[16] != "015xxxx" {
			t.Errorf("%d classes: %q", len(got), got)
		}
		hedgetest.Update(t, s, options()...)
		for minutes := range 20 {
			time.Sleep(time.Minute)
			if got := delay(0, ms); !within(got, ms, 0.03) {
				t.Errorf("after %d minutes the delay of class 0 is %v, want 1ms", minutes, got)
			}
			delay(100, ms)
			switch got := names(); {
			case minutes < 13 && (len(got) != 17 || got[1] != "000xxxx" || got[16] != "015xxxx"),
				minutes > 16 && strings.TrimPrefix(strings.Join(got, " "), "(other) ") != "000xxxx 100xxxx":
				t.Errorf("after %d minutes there are the classes %s", minutes, got)
			}
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
		for range 200 { // in turn, so that it is no change of distribution
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
