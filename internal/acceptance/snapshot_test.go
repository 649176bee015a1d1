package acceptance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// snapshotOf returns a scheduler's snapshot.
func snapshotOf(t testing.TB, s *hedge.Scheduler) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// takenOver returns a scheduler that begins with snapshots.
func takenOver(t testing.TB, snapshots [][]byte, opts ...hedge.Option) *hedge.Scheduler {
	t.Helper()
	for _, b := range snapshots {
		opts = append(opts, hedge.WithSnapshot(bytes.NewReader(b)))
	}
	return hedgetest.All(t, opts...)
}

// stragglers makes calls, 100 a second: one in twenty takes 100 ms and the others about 5 ms.
func stragglers(t testing.TB, s *hedge.Scheduler, name string, calls int, seed uint64) {
	t.Helper()
	distribution := testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 20)
	var group sync.WaitGroup
	for id := range uint64(calls) {
		time.Sleep(10 * ms)
		group.Go(func() {
			_, err := hedge.Do(t.Context(), s, target, name, func(ctx context.Context) (int, error) {
				return hedgetest.Taking(distribution.Draw(simulation.Generator(seed, id, simulation.AttemptOf(ctx))))(ctx)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	synctest.Wait()
}

// quantiles are what Latency returns.
func quantiles(t testing.TB, s *hedge.Scheduler, target, name string) (all []float64) {
	t.Helper()
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		d, ok := s.Latency(target, name, q)
		if !ok {
			t.Fatalf("no latency is known for %s at %s", name, target)
		}
		all = append(all, float64(d))
	}
	return all
}

// TestSnapshot_IsRestored restores a method and its class: they are known from the first call on,
// and in the snapshots after that. Methods that the options do not select are omitted.
func TestSnapshot_IsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byMethod := hedge.WithClass(func(_ context.Context, method string, _ any) string {
			return strings.Repeat("ü", len(method))
		})
		s := hedgetest.All(t, byMethod)
		stragglers(t, s, method, 3_000, 1)
		hedgetest.Call(t, s, target, "/pkg.Svc/Delete", ms)
		if s.Stats().HedgeWins == 0 {
			t.Fatal("no hedge won, so nothing was cut short")
		}
		want := quantiles(t, s, target, method)
		isKnown := func(s *hedge.Scheduler, precise float64) {
			t.Helper()
			got := quantiles(t, s, target, method)
			for i := range want {
				if math.Abs(got[i]/want[i]-1) > precise {
					t.Errorf("the quantiles are %v, want %v", got, want)
				}
			}
		}
		again := hedgetest.New(t, hedge.WithMethods(method), byMethod, hedge.WithSnapshot(bytes.NewReader(snapshotOf(t, s))))
		if rows := again.Methods(); len(rows) != 1 || rows[0].Calls != 0 || rows[0].Target != target ||
			rows[0].Method != method || rows[0].Classes != nil {
			t.Errorf("the rows are %+v", rows)
		}
		isKnown(again, 0.021)

		// The first call is hedged.
		_, err := hedge.Do(t.Context(), again, target, method, func(ctx context.Context) (int, error) {
			return hedgetest.Taking([]time.Duration{time.Second, 5 * ms}[simulation.AttemptOf(ctx)])(ctx)
		})
		if stats := again.Stats(); err != nil || stats.Hedged != 1 || stats.HedgeWins != 1 || stats.Warmup != 0 {
			t.Errorf("%+v, %v; want the first call hedged, and won by its hedge", stats, err)
		}
		synctest.Wait()

		third := takenOver(t, [][]byte{snapshotOf(t, takenOver(t, [][]byte{snapshotOf(t, again)}, byMethod))}, byMethod)
		isKnown(third, 0.03)
		hedgetest.Call(t, third, target, method, 5*ms)
		was, is := s.Methods()[1].Classes[0], third.Methods()[0].Classes[0]
		if is.Class != was.Class || !within(is.P90, was.P90, 0.03) || is.Choice.Delay == 0 {
			t.Errorf("the class is %+v, want as %+v", is, was)
		}
	})
}

// TestSnapshot_Errors has a reader and a writer that fail, and schedulers that know nothing. The
// tests of internal/registry have the snapshots that are refused.
func TestSnapshot_Errors(t *testing.T) {
	disk := broken{errors.New("disk full")}
	if _, err := hedge.New(hedge.WithAllMethods(), hedge.WithSnapshot(disk)); !errors.Is(err, disk.err) ||
		!strings.HasPrefix(err.Error(), "hedge: WithSnapshot: ") {
		t.Errorf("the error is %v", err)
	}
	if err := hedgetest.All(t).WriteSnapshot(disk); !errors.Is(err, disk.err) ||
		!strings.HasPrefix(err.Error(), "hedge: WriteSnapshot: ") {
		t.Errorf("the error is %v", err)
	}
	for _, s := range []*hedge.Scheduler{nil, {}} {
		if rows := takenOver(t, [][]byte{snapshotOf(t, s)}).Methods(); len(rows) > 0 {
			t.Errorf("restored %+v, want nothing", rows)
		}
	}
}

type broken struct{ err error }

func (f broken) Read([]byte) (int, error)  { return 0, f.err }
func (f broken) Write([]byte) (int, error) { return 0, f.err }

// TestRule16_SnapshotsAreBounded restores more methods than there is room for: the methods with the
// most calls stay, and there is room for new methods. Methods that are not called leave.
func TestRule16_SnapshotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		for i := range 400 {
			for range 5 + max(0, 40-i) {
				hedgetest.Call(t, s, target, fmt.Sprintf("%s%d", method, i), ms)
			}
		}
		again := takenOver(t, [][]byte{snapshotOf(t, s)}, hedge.WithMaxMethods(300))
		if n := len(again.Methods()); n != 150 {
			t.Errorf("%d of 400 methods are restored, want half of the maximum of 300", n)
		}
		for i := range 40 {
			if _, ok := again.Latency(target, fmt.Sprintf("%s%d", method, i), 0.5); !ok {
				t.Errorf("method %d, with the most calls, is left out", i)
			}
		}
		for _, want := range []int{151, 151, 1} {
			hedgetest.Call(t, again, target, "/pkg.Svc/New", ms)
			if n := len(again.Methods()); want != 151 && n != want || n > 151 {
				t.Errorf("%d methods, want %d", n, want)
			}
			time.Sleep(11 * time.Minute)
		}
	})
}

// TestSnapshot_WhileCallsAreMade writes snapshots, each of them whole, while calls end and new
// methods come.
func TestSnapshot_WhileCallsAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		donor := hedgetest.All(t)
		stragglers(t, donor, method+"0", 1_000, 1)
		s := takenOver(t, [][]byte{snapshotOf(t, donor)},
			hedge.WithClass(func(_ context.Context, name string, _ any) string { return name[len(name)-1:] }))
		rounds := longtest.Size(10, 50)
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() { stragglers(t, s, fmt.Sprintf("%s%d", method, i), 10*rounds, uint64(i)) })
			group.Go(func() {
				for range rounds {
					time.Sleep(97 * ms)
					b := snapshotOf(t, s)
					takenOver(t, [][]byte{b})
					s.Latency(target, method+"0", 0.9)
				}
			})
		}
		group.Wait()
	})
}
