package otel_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// hosts answers requests, by the host of their URL, as the target of that name does. The query is
// the number of the call.
type hosts map[string]trouble

func (h hosts) RoundTrip(req *http.Request) (*http.Response, error) {
	id, _ := strconv.Atoi(req.URL.RawQuery)
	res := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}
	switch err := h[req.URL.Host].attempt(req.Context(), id, req.Header.Get("Hedge-Attempt") != ""); status.Code(err) {
	case codes.ResourceExhausted:
		res.StatusCode = http.StatusTooManyRequests
	case codes.Unavailable:
		res.StatusCode = http.StatusServiceUnavailable
	}
	return res, req.Context().Err()
}

// httpScenario is scenario for requests of package hedgehttp, with a target that has stragglers.
func httpScenario(t *testing.T) (scrapes []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
		base := hosts{"stragglers": {target: "stragglers",
			takes: func(id int, hedge bool) (time.Duration, error) { return either(hedge || id%20 > 0, 5, 100), nil }}}
		options := []hedge.Option{b.telemetry(t), hedge.WithControl(40)}
		for _, tr := range troubles {
			base[tr.target] = tr
			options = append(options, hedge.WithTargetOptions("http://"+tr.target,
				append(tr.options, fixed, hedge.WithMaxHedges(1), hedge.WithControl(0))...))
		}
		s, paused := hedgetest.All(t, options...), hedgetest.All(t, b.telemetry(t))
		paused.Pause()
		var callers sync.WaitGroup
		for host := range base {
			client, pause := http.Client{Transport: hedgehttp.Transport(s, base)}, time.Second
			switch host {
			case "paused":
				client.Transport = hedgehttp.Transport(paused, base)
			case "stragglers":
				pause /= 4
			}
			callers.Go(func() {
				for id, began := 0, time.Now(); time.Since(began) < 90*time.Minute; id++ {
					if res, err := client.Get("http://" + host + "?" + strconv.Itoa(id)); err == nil {
						res.Body.Close()
					}
					time.Sleep(pause)
				}
			})
		}
		time.Sleep(ms / 2)
		for range 90 {
			scrapes = append(scrapes, b.scrape())
			time.Sleep(time.Minute)
		}
		scrapes = append(scrapes, b.scrape())
		callers.Wait()
	})
	return scrapes
}
