package acceptance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
			t.Fatalf("nothing is known of %s at %s", name, target)
		}
		all = append(all, float64(d))
	}
	return all
}

func near(a, b []float64, within float64) bool {
	for i := range a {
		if math.Abs(a[i]/b[i]-1) > within {
			return false
		}
	}
	return len(a) == len(b)
}

func TestSnapshot_IsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		stragglers(t, s, method, 3_000, 1)
		if s.Stats().HedgeWins == 0 {
			t.Fatal("no hedge won, so that nothing was cut short")
		}
		again := takenOver(t, [][]byte{snapshotOf(t, s)})
		want, got := quantiles(t, s, target, method), quantiles(t, again, target, method)
		if !near(want, got, 0.021) {
			t.Errorf("the quantiles are %v, want %v", got, want)
		}
		if row := again.Methods()[0]; row.Calls != 0 || row.Target != target || row.Method != method {
			t.Errorf("the row is %+v", row)
		}

		// The first call is hedged.
		began := time.Now()
		_, err := hedge.Do(t.Context(), again, target, method, func(ctx context.Context) (int, error) {
			if simulation.AttemptOf(ctx) == 0 {
				return hedgetest.Taking(time.Second)(ctx)
			}
			return hedgetest.Taking(5 * ms)(ctx)
		})
		if took := time.Since(began); err != nil || took > 50*ms {
			t.Errorf("the first call took %v, %v", took, err)
		}
		if stats := again.Stats(); stats.Hedged != 1 || stats.HedgeWins != 1 || stats.Warmup != 0 {
			t.Errorf("%+v", stats)
		}
		synctest.Wait()

		// Restored knowledge is in the next snapshot, and in the one after it.
		third := takenOver(t, [][]byte{snapshotOf(t, takenOver(t, [][]byte{snapshotOf(t, again)}))})
		if got := quantiles(t, third, target, method); !near(want, got, 0.03) {
			t.Errorf("the quantiles of the third are %v, want %v", got, want)
		}
	})
}

func TestSnapshot_OfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byMethod := hedge.WithClass(func(_ context.Context, method string, _ any) string {
			return strings.Repeat("ü", len(method))
		})
		s := hedgetest.All(t, byMethod)
		stragglers(t, s, method, 1_000, 1)
		again := takenOver(t, [][]byte{snapshotOf(t, takenOver(t, [][]byte{snapshotOf(t, s)}, byMethod))}, byMethod)
		if classes := again.Methods()[0].Classes; classes != nil {
			t.Errorf("classes without a call: %+v", classes)
		}
		hedgetest.Call(t, again, target, method, 5*ms)
		was, is := s.Methods()[0].Classes[0], again.Methods()[0].Classes[0]
		if is.Class != was.Class || math.Abs(float64(is.P90)/float64(was.P90)-1) > 0.03 || is.Choice.Delay == 0 {
			t.Errorf("the class is %+v, want as %+v", is, was)
		}
	})
}

// TestSnapshot_OfSelectedMethods omits methods that the options do not select.
func TestSnapshot_OfSelectedMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		stragglers(t, s, "/pkg.Svc/Get", 100, 1)
		stragglers(t, s, "/pkg.Svc/Delete", 100, 2)
		again := hedgetest.New(t, hedge.WithMethods("/pkg.Svc/Get"), hedge.WithSnapshot(bytes.NewReader(snapshotOf(t, s))))
		if rows := again.Methods(); len(rows) != 1 || rows[0].Method != "/pkg.Svc/Get" {
			t.Errorf("%+v", rows)
		}
	})
}

// TestSnapshot_Errors has readers and writers that fail. The tests of internal/registry have the
// snapshots that are refused.
func TestSnapshot_Errors(t *testing.T) {
	broken := failing{errors.New("disk full")}
	for want, reader := range map[string]io.Reader{
		"hedge: WithSnapshot(nil): must not be nil": nil,
		"hedge: WithSnapshot: empty":                strings.NewReader(""),
		"hedge: WithSnapshot: disk full":            broken,
	} {
		s, err := hedge.New(hedge.WithAllMethods(), hedge.WithSnapshot(reader))
		if s != nil || err == nil || err.Error() != want {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
	if err := hedgetest.All(t).WriteSnapshot(broken); !errors.Is(err, broken.err) ||
		!strings.HasPrefix(err.Error(), "hedge: WriteSnapshot: ") {
		t.Errorf("the error is %q", err)
	}
	for _, s := range []*hedge.Scheduler{nil, {}} {
		if rows := takenOver(t, [][]byte{snapshotOf(t, s)}).Methods(); len(rows) > 0 {
			t.Errorf("%+v", rows)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestRule16_SnapshotsAreBounded restores more methods than there is room for: the methods with the
// most calls stay, and there is room for new methods.
func TestRule16_SnapshotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		for i := range 400 {
			name := fmt.Sprintf("%s%d", method, i)
			for range 5 {
				hedgetest.Call(t, s, target, name, ms)
			}
			if i < 40 {
				hedgetest.Call(t, s, target, name, 3*ms)
			}
		}
		again := takenOver(t, [][]byte{snapshotOf(t, s)}, hedge.WithMaxMethods(300))
		rows := again.Methods()
		if len(rows) != 150 {
			t.Errorf("%d of 400 methods are taken over, want half of the 300 that there may be", len(rows))
		}
		for i := range 40 {
			if _, ok := again.Latency(target, fmt.Sprintf("%s%d", method, i), 0.5); !ok {
				t.Errorf("method %d, which had the most calls, is left out", i)
			}
		}
		hedgetest.Call(t, again, target, "/pkg.Svc/New", ms)
		if got := len(again.Methods()); got != len(rows)+1 {
			t.Errorf("%d methods after a call of a new one, want %d", got, len(rows)+1)
		}
		time.Sleep(20 * time.Minute)
		hedgetest.Call(t, again, target, "/pkg.Svc/New", ms)
		time.Sleep(2 * time.Minute)
		hedgetest.Call(t, again, target, "/pkg.Svc/New", ms)
		if rows := again.Methods(); len(rows) != 1 {
			t.Errorf("%d methods are left of which 1 is called", len(rows))
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

// TestSnapshot_OfTheRate lets the bucket of a target begin with what its calls earn in two seconds,
// also if the scheduler has a budget for that target alone.
func TestSnapshot_OfTheRate(t *testing.T) {
	for _, opts := range [][]hedge.Option{nil,
		{hedge.WithBudgetPercent(0), hedge.WithTargetOptions("*", hedge.WithBudgetPercent(10))}} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, opts...)
			stragglers(t, s, method, 1_000, 1) // 100 a second
			again := takenOver(t, [][]byte{snapshotOf(t, takenOver(t, [][]byte{snapshotOf(t, s)}, opts...))}, opts...)
			time.Sleep(10 * time.Second) // it need not come at once
			hedgetest.Call(t, again, target, method, ms)
			if got := again.Methods()[0].Tokens; got < 7 || got > 9 {
				t.Errorf("%v tokens after the first call, want 8", got)
			}
		})
	}
}
