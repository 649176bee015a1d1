package browser_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

const ms = time.Millisecond

// method is a method with its call rate per second. From an age of the program on, if there is one,
// its attempts take a second more, fail, or take 40 ms more because its goroutines wait for a processor.
type method struct {
	target, name        string
	rate                float64
	takes               testserver.Distribution
	stalls, fails, busy time.Duration
}

var stragglers = testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10)

var healthy = []method{
	{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers},
	{target: "items.shop:443", name: "/shop.Items/Search", rate: 25,
		takes: testserver.Straggler(testserver.LogNormal(33*ms, 14*ms), 0.03, 8)},
	{target: "prices.shop:443", name: "/shop.Prices/List", rate: 20, takes: testserver.LogNormal(80*ms, 16*ms)},
	{target: "prices.shop:443", name: "/shop.Prices/Rare", rate: 0.02, takes: testserver.LogNormal(80*ms, 16*ms)},
}

var unhealthy = []method{{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers,
	stalls: 6 * time.Minute}}

var outage = []method{{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers,
	fails: 6 * time.Minute}}

var busy = []method{{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers,
	busy: 6 * time.Minute}}

// afterTenMinutes calls the methods for ten minutes of virtual time under a scheduler with these
// options, then updates it, and returns a handler with the debug page as it is then.
func afterTenMinutes(t *testing.T, methods []method, options []hedge.Option, update string) http.Handler {
	t.Helper()
	pages := map[string]*httptest.ResponseRecorder{}
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, options...)
		page, began := debug.Handler(s), time.Now() // it has a history from now on
		since := func(age time.Duration) bool { return age > 0 && time.Since(began) > age }
		defer runqueue.Replace(func() time.Duration {
			if since(methods[0].busy) {
				return 20 * ms
			}
			return 0
		})()
		var running sync.WaitGroup
		for n, m := range methods {
			running.Go(func() {
				pauses := rand.New(rand.NewPCG(2, uint64(n)))
				for id := uint64(0); time.Since(began) < 10*time.Minute+30*time.Second; id++ {
					time.Sleep(time.Duration(float64(time.Second) / m.rate * pauses.ExpFloat64()))
					running.Go(func() {
						_, _ = hedge.Do(t.Context(), s, m.target, m.name, func(ctx context.Context) (int, error) {
							d := m.takes.Draw(simulation.Generator(uint64(n), id, simulation.AttemptOf(ctx)))
							switch {
							case since(m.stalls):
								d += time.Second
							case since(m.busy):
								d += 40 * ms
							case since(m.fails):
								return 0, status.Error(codes.Unavailable, "down")
							}
							return hedgetest.Taking(d)(ctx)
						})
					})
				}
			})
		}
		time.Sleep(10*time.Minute + 29*time.Second)
		if update != "" && config.Update(s, []byte(update)) == nil {
			t.Errorf("the update %s is not refused", update)
		}
		for _, query := range []string{"", "format=html&part=main"} {
			r := httptest.NewRequest("GET", "/?"+query, nil)
			r.Header.Set("Accept", "text/html")
			pages[query] = httptest.NewRecorder()
			page.ServeHTTP(pages[query], r)
		}
		running.Wait()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.RawQuery]
		if page == nil { // an asset
			debug.Handler(nil).ServeHTTP(w, r)
			return
		}
		maps.Copy(w.Header(), page.Header())
		_, _ = w.Write(page.Body.Bytes())
	})
}
