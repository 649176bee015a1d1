package browser_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

const ms = time.Millisecond

// attempts returns the latency of an attempt that begins at the given age of the program.
type attempts func(r *rand.Rand, at time.Duration) time.Duration

func lognormal(median time.Duration, sigma, slow, factor float64) attempts {
	return func(r *rand.Rand, _ time.Duration) time.Duration {
		d := float64(median) * math.Exp(sigma*r.NormFloat64())
		if r.Float64() < slow {
			d *= factor
		}
		return time.Duration(d)
	}
}

// stalling takes a second more from the given age on.
func stalling(usual attempts, from time.Duration) attempts {
	return func(r *rand.Rand, at time.Duration) time.Duration {
		d := usual(r, at)
		if at > from {
			d += time.Second
		}
		return d
	}
}

// method is a method with its call rate per second.
type method struct {
	target, name string
	rate         float64
	takes        attempts
}

var healthy = []method{
	{"items.shop:443", "/shop.Items/Get", 60, lognormal(5*ms, 0.35, 0.05, 10)},
	{"items.shop:443", "/shop.Items/Search", 25, lognormal(30*ms, 0.4, 0.03, 8)},
	{"prices.shop:443", "/shop.Prices/List", 20, lognormal(80*ms, 0.2, 0, 1)},
	{"prices.shop:443", "/shop.Prices/Rare", 0.02, lognormal(80*ms, 0.2, 0, 1)},
}

var unhealthy = []method{
	{"items.shop:443", "/shop.Items/Get", 60, stalling(lognormal(5*ms, 0.35, 0.05, 10), 6*time.Minute)},
}

// afterTenMinutes calls the methods for ten minutes of virtual time under a scheduler with these
// options, and returns a handler with the debug page's answers to the queries.
func afterTenMinutes(t *testing.T, methods []method, options []hedge.Option, queries ...string) http.Handler {
	t.Helper()
	pages := map[string]*httptest.ResponseRecorder{}
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, options...)
		page := debug.Handler(s)
		began := time.Now()
		var running sync.WaitGroup
		for n, m := range methods {
			running.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(n)))
				var mu sync.Mutex
				draw := func() time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return m.takes(r, time.Since(began))
				}
				for time.Since(began) < 10*time.Minute+30*time.Second {
					time.Sleep(time.Duration(float64(time.Second) / m.rate * rand.New(
						rand.NewPCG(2, uint64(time.Since(began)))).ExpFloat64()))
					running.Go(func() { call(t.Context(), s, m, draw) })
				}
			})
		}
		time.Sleep(10*time.Minute + 29*time.Second)
		for _, query := range queries {
			r := httptest.NewRequest("GET", "/"+query, nil)
			r.Header.Set("Accept", "text/html")
			pages[query] = httptest.NewRecorder()
			page.ServeHTTP(pages[query], r)
		}
		running.Wait()
	})
	live := debug.Handler(nil) // for the assets
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("asset") {
			live.ServeHTTP(w, r)
			return
		}
		query := ""
		if r.URL.RawQuery != "" {
			query = "?" + r.URL.RawQuery
		}
		page := pages[query]
		if page == nil {
			http.Error(w, "not recorded", http.StatusNotFound)
			return
		}
		for name, values := range page.Header() {
			w.Header()[name] = values
		}
		_, _ = w.Write(page.Body.Bytes())
	})
}

// call makes a call. draw returns the latency of each attempt.
func call(ctx context.Context, s *hedge.Scheduler, m method, draw func() time.Duration) {
	_, _ = hedge.Do(ctx, s, m.target, m.name,
		func(ctx context.Context) (int, error) { return hedgetest.Taking(draw())(ctx) })
}
