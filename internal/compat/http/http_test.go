// Package http_test hedges HTTP clients and servers that others wrote.
package http_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what servers give for a number: a few kilobytes that no other number has.
func answer(n string) []byte {
	sum := sha256.Sum256([]byte(n))
	return bytes.Repeat([]byte(hex.EncodeToString(sum[:])), 50)
}

// serveOpenAI streams the answer to a prompt.
func serveOpenAI(t *testing.T) http.Handler {
	prompt := regexp.MustCompile(`prompt (\d+)`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for all := answer(prompt.FindStringSubmatch(string(body))[1]); len(all) > 0; all = all[400:] {
			fmt.Fprintf(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`+
				"\n\n", all[:400])
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
}

// configMap is an object of Kubernetes' API with the answer n.
func configMap(n string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"answer": string(answer(n))},
		"metadata": map[string]any{"name": n, "namespace": "default", "resourceVersion": "1"}}
}

// serveKubernetes gets, lists and watches config maps. A watch has one event at its start, and one
// for every twelfth object that is read.
func serveKubernetes(t *testing.T) http.Handler {
	var mu sync.Mutex
	watches := map[chan string]bool{}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /api/v1/namespaces/default/configmaps/{n}", func(w http.ResponseWriter, r *http.Request) {
		if n, _ := strconv.Atoi(r.PathValue("n")); n%12 == 0 {
			mu.Lock()
			for events := range watches {
				events <- r.PathValue("n")
			}
			mu.Unlock()
		}
		reply(w, configMap(r.PathValue("n")))
	})
	mux.HandleFunc("GET /api/v1/namespaces/default/configmaps", func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			reply(w, map[string]any{"apiVersion": "v1", "kind": "ConfigMapList", "items": []any{configMap("7")},
				"metadata": map[string]any{"resourceVersion": "1"}})
			return
		}
		events := make(chan string, 1000)
		events <- r.URL.Query().Get("resourceVersion")
		mu.Lock()
		watches[events] = true
		mu.Unlock()
		defer func() { mu.Lock(); delete(watches, events); mu.Unlock() }()
		for {
			select {
			case n := <-events:
				reply(w, map[string]any{"type": "MODIFIED", "object": configMap(n)})
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	return mux
}

// dialKubernetes gets an object by each call. One in twelve is seen by a watch too that lasts for the whole
// test, and others list or begin a watch of their own.
func dialKubernetes(t *testing.T, c *http.Client, url string) caller {
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: url, QPS: -1}, c)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	next := func(ctx context.Context, w watch.Interface, n int) error {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type != watch.Modified {
				return fmt.Errorf("the watch has ended, or has an error: %v", e)
			}
			return checkObject(e.Object, n)
		case <-ctx.Done():
			return errors.New("no event")
		}
	}
	begin := func(ctx context.Context, n int) (watch.Interface, error) {
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.Itoa(n)})
		if err != nil {
			return nil, err
		}
		return w, next(ctx, w, n)
	}
	lasting, err := begin(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lasting.Stop)
	return func(ctx context.Context, n int) error {
		switch n % 12 {
		case 3:
			list, err := maps.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			return checkObject(&list.Items[0], 7)
		case 6:
			own, err := begin(ctx, n)
			if own != nil {
				own.Stop()
			}
			return err
		}
		got, err := maps.Get(ctx, strconv.Itoa(n), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n%12 == 0 {
			err = next(ctx, lasting, n)
		}
		return errors.Join(err, checkObject(got, n))
	}
}

func checkObject(object runtime.Object, n int) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	data, _ := fields["data"].(map[string]any)
	got, _ := data["answer"].(string)
	return check([]byte(got), n)
}

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
