package hedge_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

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
			{"off by a rule", []hedge.Option{hedge.WithAllMethods(), hedge.WithTargetOptions("spanner", hedge.WithOff())}, nil},
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
