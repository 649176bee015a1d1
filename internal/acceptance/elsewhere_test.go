package acceptance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// providers are functions of hedge.Do that note who was asked.
type providers struct {
	mu    sync.Mutex
	asked []string
}

// attempt takes d, and fails with the code unless it is OK.
func (p *providers) attempt(name string, d time.Duration, code codes.Code) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		p.mu.Lock()
		p.asked = append(p.asked, name)
		p.mu.Unlock()
		if _, err := hedgetest.Taking(d)(ctx); err != nil {
			return "", err
		}
		return name, status.Error(code, name)
	}
}

// TestDo_Elsewhere has hedges call functions of their own. A nil function is no destination.
func TestDo_Elsewhere(t *testing.T) {
	const ok, down, quota = codes.OK, codes.Unavailable, codes.ResourceExhausted
	for _, tc := range []struct {
		name  string
		times [3]time.Duration // of a, b, c
		code  [3]codes.Code
		want  string
		asked []string
	}{
		{name: "a answers", times: [3]time.Duration{5 * ms}, want: "a", asked: []string{"a"}},
		{name: "b answers", times: [3]time.Duration{time.Hour, 5 * ms}, want: "b", asked: []string{"a", "b"}},
		{name: "a and b fail", code: [3]codes.Code{down, down, ok}, want: "c", asked: []string{"a", "b", "c"}},
		{name: "all fail but b, later", times: [3]time.Duration{0, time.Second}, code: [3]codes.Code{down, ok, down},
			want: "b", asked: []string{"a", "b", "c", "b"}},
		{name: "a and b have no quota", code: [3]codes.Code{quota, quota, ok}, want: "c", asked: []string{"a", "b", "c"}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithFailover(down, quota), hedge.WithMaxHedges(3))
			var p providers
			got, err := hedge.Do(t.Context(), s, "llm", "/llm/Chat", p.attempt("a", tc.times[0], tc.code[0]),
				p.attempt("b", tc.times[1], tc.code[1]), nil, p.attempt("c", tc.times[2], tc.code[2]))
			if synctest.Wait(); got != tc.want || err != nil || !slices.Equal(p.asked, tc.asked) {
				t.Errorf("%q, %v from %v, want %q from %v", got, err, p.asked, tc.want, tc.asked)
			}
			for _, m := range s.Methods() {
				hedges := map[string]int64{"llm#2": 0, "llm#3": 0}
				for n := 1; n < len(tc.asked); n++ {
					hedges[fmt.Sprintf("llm#%d", 2+(n-1)%2)]++
				}
				if m.Received != hedges[m.Target] {
					t.Errorf("%s received %d hedges, want %d", m.Target, m.Received, hedges[m.Target])
				}
			}
		})
	}
}

// TestDo_LearnsElsewhere has 5% of the calls stall, at a destination whose hedges take far longer
// than primaries, and at one where they do not. With slow hedges, the plan expects no gain from the
// latency of primaries.
func TestDo_LearnsElsewhere(t *testing.T) {
	saved := func(hedgeTakes time.Duration) (saved float64, received int64) {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t)
			for n := range 4000 {
				takes := 10 * ms
				if n%20 == 0 {
					takes = 200 * ms
				}
				_, err := hedge.Do(t.Context(), s, "a", "/s/M", hedgetest.Taking(takes), hedgetest.Taking(hedgeTakes))
				if err != nil {
					t.Error(err)
				}
			}
			for _, m := range s.Methods() {
				if received += m.Received; m.Target == "a" {
					saved = m.Choice.Saved
				}
			}
		})
		return saved, received
	}
	fast, sent := saved(10 * ms)
	slow, few := saved(500 * ms)
	if fast < 0.5 || slow > 0.1 || sent < 100 || few > sent {
		t.Errorf("predicted savings are %.2f with fast hedges and %.2f with slow ones, after %d and %d hedges; want more "+
			"than .5, less than .1", fast, slow, sent, few)
	}
}
