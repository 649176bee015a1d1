package registry_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// oddOrEven is a class function for requests that are numbers.
func oddOrEven(_ context.Context, _ string, request any) string { return fmt.Sprint(request.(int) % 2) }

// changing are the options after i updates: whatever makes something new for a method or a target
// comes and goes.
func changing(i int) []hedge.Option {
	trigger := []hedge.Trigger{hedge.Percentile(0.9), hedge.Fixed(ms), hedge.Percentile(0.8)}[i%3]
	if i%50 == 10 { // seldom, because a choice takes a while
		trigger = hedge.Auto()
	}
	class := oddOrEven
	if i%3 == 1 { // another function, which names one to twenty classes
		class = func(_ context.Context, _ string, request any) string { return fmt.Sprint(i%9, request.(int)%(1+i%20)) }
	}
	opts := []hedge.Option{
		hedge.WithAllMethods(), hedge.WithMaxHedges(1 + i%3), hedge.WithBudgetPercent(float64(10 + i%7)),
		hedge.WithTrigger(trigger),
		hedge.WithMethodOptions("/pkg.Svc/Get*", hedge.WithMinDelay(time.Duration(1+i%5)*ms)),
		hedge.WithTargetOptions("dns:*", hedge.WithControl(float64(i%4))),
		hedge.WithClass(class),
	}
	if i%2 == 0 {
		opts = append(opts, hedge.WithMethodOptions("/pkg.Svc/Get1", hedge.WithBudgetPercent(float64(i%6))),
			hedgetest.Throttle(10+i%5, 0.1), hedge.WithHedgeLimit(10+i%3, time.Minute))
	}
	if i%5 == 0 {
		opts = append(opts, hedge.WithTrace(&hedge.Trace{HedgeSent: func(stats.HedgeSent) {}}),
			hedge.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
			hedge.WithServiceConfig(
				`{"methodConfig": [{"name": [{"service": "pkg.Svc", "method": "Get2"}], "hedgingPolicy": `+
					`{"maxAttempts": 2, "hedgingDelay": "0.002s"}}]}`))
	}
	return opts
}

// A scheduler that is updated a thousand times a second under load keeps nothing of the
// configurations that were: no memory and no goroutine.
func TestRule16_UpdatesLeakNothing(t *testing.T) {
	const methods, callers = 3, 64
	updates := longtest.Size(100, 4_000)
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, changing(0)[1:]...)
		calls := func(rounds int) {
			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					for i := range rounds {
						took := time.Duration(1+(caller+i)%4*3) * ms
						name := fmt.Sprintf("/pkg.Svc/Get%d", (caller+i)%methods)
						c := call.Begin((*registry.Registry)(s), t.Context(), target, name, nil)
						c.Inspect(i)
						if c.Hedged {
							hedgetest.Admit(&c, 1)
						}
						time.Sleep(took)
						c.End(call.Completion{})
					}
				})
			}
			group.Wait()
		}
		// measure makes n updates, and returns the heap in use afterwards.
		measure := func(updates int) (heap int64, goroutines int) {
			var over atomic.Bool
			var load sync.WaitGroup
			load.Go(func() {
				for !over.Load() {
					calls(20)
				}
			})
			for i := range updates {
				hedgetest.Update(t, s, changing(i)...)
				time.Sleep(ms)
			}
			over.Store(true)
			load.Wait()
			hedgetest.Update(t, s, changing(0)...)
			calls(methods)
			time.Sleep(time.Minute) // for timers and choices
			synctest.Wait()
			return int64(testserver.Heap()), runtime.NumGoroutine()
		}
		for range longtest.Size(1, 6) { // windows of latencies grow for some minutes
			measure(updates)
		}
		heap, goroutines := measure(updates)
		heapLater, goroutinesLater := measure(updates)
		runtime.KeepAlive(s)
		t.Logf("the heap grew by %d KiB in %d more updates", (heapLater-heap)>>10, updates)
		if heapLater-heap > madeOnce {
			t.Errorf("the heap has grown by %d bytes", heapLater-heap)
		}
		if goroutinesLater > goroutines {
			t.Errorf("%d goroutines, and %d later", goroutines, goroutinesLater)
		}
	})
}

// TestUpdate_ClassesMadeMeanwhile makes classes while an update changes the configuration: all of
// them have the new one.
func TestUpdate_ClassesMadeMeanwhile(t *testing.T) {
	quantiles := []float64{0.5, 0.9}
	options := func(i int) []hedge.Option {
		return []hedge.Option{hedge.WithAllMethods(), hedge.WithMaxMethods(1 << 20),
			hedge.WithTrigger(hedge.Percentile(quantiles[i%2]))}
	}
	var s *hedge.Scheduler
	for i := range longtest.Size(300, 20_000) {
		if i%300 == 0 { // an update visits the classes of all methods
			s = hedgetest.All(t, options(0)...)
		}
		m := (*registry.Registry)(s).Method(target, fmt.Sprint("/pkg.Svc/", i), time.Now())
		var made [registry.MaxClasses]*registry.Class
		var group sync.WaitGroup
		group.Go(func() {
			for class := range made {
				made[class] = m.Class(fmt.Sprint(class))
			}
		})
		for !m.HasClasses() {
			runtime.Gosched()
		}
		hedgetest.Update(t, s, options(i+1)...)
		group.Wait()
		for class, c := range made {
			if got, want := c.Learner.Config().Quantile, quantiles[(i+1)%2]; got != want {
				t.Fatalf("round %d: class %d learns the quantile %v, want %v", i, class, got, want)
			}
		}
	}
}

// TestAlignment lets no 64-bit value of go.uber.org/atomic be in a struct but as its first field:
// those are not aligned on 32-bit machines, where using them panics. The types of sync/atomic are.
func TestAlignment(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var check func(reflect.Type, string, bool)
	check = func(typ reflect.Type, path string, first bool) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			check(typ.Elem(), path, typ.Kind() != reflect.Array || first)
			return
		case reflect.Struct:
		default:
			return
		}
		if typ.PkgPath() == "go.uber.org/atomic" {
			switch typ.Name() {
			case "Int64", "Uint64", "Duration", "Float64":
				if !first {
					t.Errorf("%s is a %v, which is not aligned", path, typ)
				}
			}
			return
		}
		if key := typ; first {
			if seen[key] {
				return
			}
			seen[key] = true
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			check(f.Type, path+"."+f.Name, first && i == 0)
		}
	}
	for _, v := range []any{registry.Registry{}, registry.Target{}, registry.Method{}, registry.Class{},
		call.Call{}, settings.Config{}, settings.Settings{}} {
		check(reflect.TypeOf(v), reflect.TypeOf(v).Name(), true)
	}
}

// A panic in the choice of the trigger, on a goroutine of its own or on a caller's, leaves the last
// delay in force.
func TestTriggerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		second := func() {
			for i := range 400 {
				hedgetest.Call(t, s, target, method, ms+time.Duration(i%200)*ms/100)
			}
			synctest.Wait()
		}
		second()
		before := s.Methods()[0]
		if before.Choice == (stats.Choice{}) || before.TriggerPanics != 0 {
			t.Fatalf("%+v, want a choice, and no panic yet", before)
		}
		undo := registry.MakeTriggerPanic((*registry.Registry)(s))
		for range 3 {
			second()
		}
		broken := s.Methods()[0]
		if broken.TriggerPanics < 2 || broken.Choice != before.Choice || s.Stats().TriggerPanics != broken.TriggerPanics {
			t.Errorf("%+v\nafter %+v", broken, before)
		}
		undo()
		for range 3 {
			second()
		}
		if after := s.Methods()[0]; after.TriggerPanics != broken.TriggerPanics || after.Choice == broken.Choice {
			t.Errorf("no choice was made since: %+v", after)
		}
	})
}

// etcd names the target as etcd's client does, without the pointer in it.
func etcd(target string) string {
	if rest, ok := strings.CutPrefix(target, "etcd-endpoints://"); ok {
		_, host, _ := strings.Cut(rest, "/")
		return "etcd/" + host
	}
	return target
}

func TestWithTargetName(t *testing.T) {
	var asked atomic.Int64
	s := hedgetest.All(t, hedge.WithTargetName(func(target string) string {
		asked.Add(1)
		return etcd(target)
	}))
	for i := range 10 {
		for range 50 {
			hedgetest.Call(t, s, target, method, 0)
			c := call.Begin((*registry.Registry)(s), t.Context(), fmt.Sprintf("etcd-endpoints://0x%x/host", i), method, nil)
			c.End(call.Completion{})
		}
	}
	rows := s.Methods()
	if len(rows) != 2 || rows[1].Target != "etcd/host" || rows[1].Calls != 500 || rows[0].Target != target {
		t.Fatalf("the rows are %+v, want one for the ten connections, and one for the other target", rows)
	}
	if rows[1].Warmup != 20 {
		t.Errorf("%d calls in warm-up: a connection did not use what the previous one had learned", rows[1].Warmup)
	}
	if asked.Load() != 11 {
		t.Errorf("asked %d times for the names of 11 targets", asked.Load())
	}
	if _, ok := s.Latency("etcd/host", method, 0.5); !ok {
		t.Error("no latency is stored under the name")
	}
	if _, ok := s.Latency("etcd-endpoints://0x1/host", method, 0.5); ok {
		t.Error("a latency is stored under the connection's target")
	}
}

// A process makes a new connection, with a pointer in its target, again and again: connections of
// an idle target are forgotten; a busy target forgets names before they are many.
func TestWithTargetName_OfAnyNumberOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithMaxMethods(100), hedge.WithTargetName(etcd))
		const connections = 4_950
		for i := range connections {
			booked(s, fmt.Sprintf("etcd-endpoints://0x%x/host", i), method, ms)
			if n := registry.Names((*registry.Registry)(s)); i%50 == 0 && n > 100 {
				t.Fatalf("%d names after %d connections", n, i)
			}
		}
		if rows := s.Methods(); len(rows) != 1 || rows[0].Calls != connections {
			t.Errorf("the rows are %+v, want one with all connections", rows)
		}
		for range 20 {
			time.Sleep(time.Minute)
			booked(s, "other", method, ms)
		}
		if n := registry.Names((*registry.Registry)(s)); n > 1 {
			t.Errorf("%d names are kept", n)
		}
	})
}

func TestWithTargetName_LongNamesAreCut(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTargetName(func(string) string { return strings.Repeat("ä", 1<<20) }))
	hedgetest.Call(t, s, target, method, 0)
	if name := s.Methods()[0].Target; name != strings.Repeat("ä", 512) {
		t.Errorf("a name of %d bytes", len(name))
	}
}

func TestWithTargetName_PanicIsTheCalls(t *testing.T) {
	broken := true
	s := hedgetest.All(t, hedge.WithTargetName(func(string) string {
		if broken {
			panic("no name")
		}
		return "name"
	}))
	func() {
		defer func() {
			if recover() != "no name" {
				t.Error("the panic does not reach the caller")
			}
		}()
		hedgetest.Call(t, s, target, method, 0)
	}()
	broken = false
	hedgetest.Call(t, s, target, method, 0) // no lock is held
	if rows := s.Methods(); len(rows) != 1 || rows[0].Calls != 1 {
		t.Errorf("the rows are %+v, want one with the second call", rows)
	}
}

// Policies go by the connection's target, and the name has the backends of all its connections.
func TestWithTargetName_Backends(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTargetName(func(string) string { return "name" }))
	for _, connection := range []string{"raw-1", "raw-2"} {
		policy := place.Enter(connection)
		defer policy.Leave()
		policy.Show([]*place.Backend{
			policy.NewBackend(nil, []resolver.Address{{Addr: "shared"}}, 0),
			policy.NewBackend(nil, []resolver.Address{{Addr: connection}}, 0),
		})
		booked(s, connection, method, ms)
	}
	if rows := s.Methods(); len(rows) != 1 || rows[0].Ready != 3 {
		t.Errorf("the rows are %+v, want one with the three backends", rows)
	}
}
