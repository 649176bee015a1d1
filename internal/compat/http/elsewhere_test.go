package http_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/opensearch-project/opensearch-go/v4/opensearchtransport"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// place is one of two destinations: it takes only its own path, key and model.
type place struct {
	path, key, model string
	asked            atomic.Int64
	stalls           atomic.Bool
}

func (p *place) start(t *testing.T, app http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		body, err := io.ReadAll(r.Body)
		_, password, _ := r.BasicAuth()
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case err != nil:
			return
		case r.URL.Path != p.path || password != p.key && key != p.key || !bytes.Contains(body, []byte(p.model)):
			t.Errorf("%s with the key %q of %s: %q, want %s, %q and %q", r.URL.Path, key, password, body, p.path, p.key, p.model)
		case p.stalls.Load():
			<-r.Context().Done()
			return
		}
		r.Body, r.URL.Path = io.NopCloser(bytes.NewReader(body)), "/v1/chat/completions"
		app.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	p.asked.Store(0)
	t.Cleanup(server.Close)
	return server
}

// elsewhere is clients whose hedges go to another destination by WithHedgeRequest.
var elsewhere = []struct {
	name          string
	first, second *place
	serve         func(*testing.T) http.Handler
	dial          func(t *testing.T, c *http.Client, url string) caller
}{
	{name: "elastic-transport-go", first: &place{path: "/index/_search", key: "one"}, serve: serveAnswers,
		second: &place{path: "/index/_search", key: "two"},
		dial: func(t *testing.T, c *http.Client, at string) caller {
			u, _ := url.Parse(at)
			client, err := elastictransport.NewClient(elastictransport.WithURLs(u), elastictransport.WithTransport(c.Transport),
				elastictransport.WithDisableRetry(), elastictransport.WithBasicAuth("user", "one"))
			if err != nil {
				t.Fatal(err)
			}
			return search(client.Perform)
		}},
	{name: "opensearch-go", first: &place{path: "/index/_search", key: "one"}, serve: serveAnswers,
		second: &place{path: "/index/_search", key: "two"},
		dial: func(t *testing.T, c *http.Client, at string) caller {
			u, _ := url.Parse(at)
			client, err := opensearchtransport.New(opensearchtransport.Config{Context: t.Context(), URLs: []*url.URL{u},
				Transport: c.Transport, DisableRetry: true, Username: "user", Password: "one"})
			if err != nil {
				t.Fatal(err)
			}
			return search(client.Stream)
		}},
	{name: "openai-go", serve: serveOpenAI,
		first:  &place{path: "/v1/chat/completions", key: "one", model: `"model":"small"`},
		second: &place{path: "/openai/v1/chat/completions", key: "two", model: `"model":"large"`},
		dial: func(_ *testing.T, c *http.Client, url string) caller {
			client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("one"), option.WithHTTPClient(c),
				option.WithMaxRetries(0))
			return complete(client, "small")
		}},
}

func search(perform func(*http.Request) (*http.Response, error)) caller {
	return func(ctx context.Context, n int) error {
		query := strings.NewReader(fmt.Sprintf(`{"size":%d}`, n))
		req, err := http.NewRequestWithContext(ctx, "POST", "/index/_search", query)
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		return checkResponse(n)(perform(req))
	}
}

// send makes a hedge a request to the second place.
func (p *place) send(r *http.Request, host string) (*http.Request, error) {
	r.URL.Host, r.URL.Path = host, p.path
	if _, _, basic := r.BasicAuth(); basic {
		r.SetBasicAuth("user", p.key)
	} else {
		r.Header.Set("Authorization", "Bearer "+p.key)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	body = bytes.Replace(body, []byte(`"model":"small"`), []byte(p.model), 1)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return r, nil
}

// TestElsewhere: of two destinations with their own paths, keys and models, the first one answers a third of
// the calls, then stalls, then is down. All calls that hedge to the second one are answered.
func TestElsewhere(t *testing.T) {
	for _, tc := range elsewhere {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const third = 10
			var answered [2]int
			s := hedgetest.New(t, hedge.WithReadOnlyMethods("POST /index/_search", "POST /v1/chat/completions"),
				hedge.WithTrigger(hedge.Fixed(5*time.Millisecond)), hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1),
				hedge.WithFailover())
			second := tc.second.start(t, tc.serve(t))
			for i, scheduler := range []*hedge.Scheduler{nil, s} {
				first := tc.first.start(t, tc.serve(t))
				base := &http.Transport{MaxIdleConnsPerHost: 100}
				t.Cleanup(base.CloseIdleConnections)
				client := &http.Client{Transport: hedgehttp.Transport(scheduler, base, hedgehttp.WithHedgeRequest(
					func(_ int, r *http.Request) (*http.Request, error) {
						return tc.second.send(r, second.Listener.Addr().String())
					}))}
				call, patience := tc.dial(t, client, first.URL), []time.Duration{100 * time.Millisecond, 30 * time.Second}[i]
				tc.first.stalls.Store(false)
				for n := range 3 * third {
					switch n {
					case third:
						tc.first.stalls.Store(true)
						patience = []time.Duration{10 * time.Millisecond, 30 * time.Second}[i]
					case 2 * third:
						first.CloseClientConnections()
						first.Close()
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					if err := call(ctx, n); errors.As(err, new(wrongAnswer)) {
						t.Error(err)
					} else if err == nil {
						answered[i]++
					} else if i == 1 {
						t.Errorf("call %d: %v", n, err)
					}
					cancel()
				}
			}
			c := s.Stats()
			t.Logf("| %s | %d | %d | %d | %d, %d |", tc.name, 3*third, answered[0], answered[1], c.Hedges, c.Failovers)
			// On a busy machine a call may be hedged before it fails, and a hedge be canceled before it is received.
			if answered[0] > third || answered[1] != 3*third || c.Failovers == 0 || tc.second.asked.Load() > c.Hedges {
				t.Errorf("%d calls answered, plain %d, with %d hedges, %d of them after a failure, %d received; "+
					"want %d, at most %d, and hedges after failures",
					answered[1], answered[0], c.Hedges, c.Failovers, tc.second.asked.Load(), 3*third, third)
			}
		})
	}
}
