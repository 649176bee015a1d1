package hedgehttp_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule03_Failover has the first attempt of a GET fail at once, and its hedge answer. Then
// hedge.Do gets the answers and errors of a plain client.
func TestRule03_Failover(t *testing.T) {
	for _, tc := range []struct {
		name         string
		primary      reply
		mended, byDo bool
	}{
		{name: "no connection", primary: reply{}, mended: true, byDo: true},
		{name: "502", primary: is(502, 0), mended: true},
		{name: "503", primary: is(503, 0), mended: true},
		{name: "504", primary: is(504, 0), mended: true},
		{name: "503 with Retry-After", primary: reply{status: 503, header: http.Header{"Retry-After": {"1"}}}},
		{name: "429", primary: is(429, 0)},
		{name: "500", primary: is(500, 0)},
		{name: "404", primary: is(404, 0)},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, time.Hour, hedge.WithFailover())
			get := func(client http.Client) (int, error) {
				res, err := client.Get("http://example.test/users/1")
				if err != nil {
					return 0, err
				}
				return res.StatusCode, res.Body.Close()
			}
			f := &fake{script: script{tc.primary, is(200, 0)}}
			code, err := get(http.Client{Transport: hedgehttp.Transport(s, f)})
			time.Sleep(time.Minute)
			if (code == 200) != tc.mended || f.sent.Load() != 1+s.Stats().Failovers || f.open.Load() != 0 {
				t.Errorf("a hedged client got %d, %v from %d attempts, want one that is mended: %v; %d bodies are open",
					code, err, f.sent.Load(), tc.mended, f.open.Load())
			}

			f = &fake{script: f.script}
			code, err = hedge.Do(t.Context(), s, "t", "/s/Get", func(context.Context) (int, error) {
				return get(http.Client{Transport: f})
			})
			if mended := f.sent.Load() == 2; mended != tc.byDo || err != nil {
				t.Errorf("hedge.Do returned %d, %v after %d attempts, want one that is mended: %v",
					code, err, f.sent.Load(), tc.byDo)
			}
		})
	}
}
