package hedgehttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
)

// hanging returns a server that answers the first request with headers, but no body.
func hanging(contentType string) *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if contentType != "" { // a stream
			w.Header().Set("Content-Type", contentType)
			w.(http.Flusher).Flush()
		}
		if requests.Add(1) == 1 {
			<-r.Context().Done() // until the other attempt has won
			return
		}
		fmt.Fprint(w, "data: hello\n")
	}))
}

// scheduler hedges after 10 ms: examples are too short to learn a delay.
func scheduler(selected hedge.Option) *hedge.Scheduler {
	s, err := hedge.New(selected, hedge.WithWarmup(20, 10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	return s
}

func show(res *http.Response, err error) {
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	fmt.Printf("%q %v\n", body, err)
}

func ExampleTransport() {
	server := hanging("")
	defer server.Close()
	s := scheduler(hedge.WithAllMethods())
	client := &http.Client{Transport: hedgehttp.Transport(s, http.DefaultTransport)}
	show(client.Get(server.URL))
	// Output: "data: hello\n" <nil>
}

// POST requests are hedged if a pattern selects them.
func ExampleTransport_readsByPOST() {
	server := hanging("text/event-stream")
	defer server.Close()
	s := scheduler(hedge.WithReadOnlyMethods("POST /v1/chat/completions", "POST /{index}/_search"))
	client := &http.Client{Transport: hedgehttp.Transport(s, nil)}
	show(client.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader("{}")))
	fmt.Println(s.Methods()[0].Method)
	// Output:
	// "data: hello\n" <nil>
	// POST /v1/chat/completions
}

// GraphQL queries have one path. A header of their client has a name that patterns select.
func ExampleWithName() {
	server := hanging("text/event-stream")
	defer server.Close()
	s := scheduler(hedge.WithReadOnlyMethods("/graphql/Get*"))
	client := &http.Client{Transport: hedgehttp.Transport(s, nil, hedgehttp.WithName(func(r *http.Request) string {
		if operation := r.Header.Get("X-Operation-Name"); operation != "" {
			return "/graphql/" + operation
		}
		return ""
	}))}
	req, err := http.NewRequest("POST", server.URL+"/graphql", strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	req.Header.Set("X-Operation-Name", "GetUser")
	show(client.Do(req))
	// Output: "data: hello\n" <nil>
}

// The server answers a repeated key with the response of the first request.
func ExampleWithIdempotencyKey() {
	server := hanging("text/event-stream")
	defer server.Close()
	s := scheduler(hedge.WithAllMethods())
	client := &http.Client{Transport: hedgehttp.Transport(s, nil, hedgehttp.WithIdempotencyKey())}
	req, err := http.NewRequest("POST", server.URL+"/orders", strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Idempotency-Key", "8e03978e")
	show(client.Do(req))
	// Output: "data: hello\n" <nil>
}

// Server-sent events of a GET request. The first comes at once.
func ExampleWithFirstByte() {
	server := hanging("text/event-stream")
	defer server.Close()
	s := scheduler(hedge.WithAllMethods())
	client := &http.Client{Transport: hedgehttp.Transport(s, nil,
		hedgehttp.WithFirstByte(func(res *http.Response) bool {
			return strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream")
		}))}
	show(client.Get(server.URL))
	// Output: "data: hello\n" <nil>
}

// elsewhere sends requests to another node.
type elsewhere struct {
	base http.RoundTripper
	host string
}

func (e elsewhere) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context()) // a RoundTripper must not change its request
	req.URL.Host, req.Host = e.host, ""
	return e.base.RoundTrip(req)
}

// The client has chosen a node, which is slow. Hedges go to another one.
func ExampleWithHedgeTransport_anotherNode() {
	slow := hanging("")
	defer slow.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello from the other node")
	}))
	defer other.Close()
	s := scheduler(hedge.WithAllMethods())
	hedges := elsewhere{base: http.DefaultTransport, host: strings.TrimPrefix(other.URL, "http://")}
	client := &http.Client{Transport: hedgehttp.Transport(s, http.DefaultTransport, hedgehttp.WithHedgeTransport(hedges))}
	defer client.CloseIdleConnections()
	show(client.Get(slow.URL))
	// Output: "hello from the other node" <nil>
}

// Hedges use separate connections.
func ExampleWithHedgeTransport() {
	server := hanging("")
	defer server.Close()
	s := scheduler(hedge.WithAllMethods())
	base := http.DefaultTransport.(*http.Transport)
	hedges := base.Clone()
	client := &http.Client{Transport: hedgehttp.Transport(s, base, hedgehttp.WithHedgeTransport(hedges))}
	defer client.CloseIdleConnections()
	show(client.Get(server.URL))
	// Output: "data: hello\n" <nil>
}

// Hedges go to another provider, with its own host and key.
func ExampleWithHedgeRequest() {
	s, err := hedge.New(hedge.WithAllMethods(), hedge.WithFailover())
	if err != nil {
		panic(err)
	}
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer first.Close()
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "the second provider, key ", r.Header.Get("Authorization"))
	}))
	defer second.Close()
	toSecond := func(_ int, r *http.Request) (*http.Request, error) {
		u, err := url.Parse(second.URL + "/v1/chat")
		if err != nil {
			return nil, err
		}
		r.URL, r.Host = u, ""
		r.Header.Set("Authorization", "2")
		return r, nil
	}
	client := &http.Client{Transport: hedgehttp.Transport(s, nil, hedgehttp.WithHedgeRequest(toSecond))}
	show(client.Get(first.URL))
	// Output: "the second provider, key 2" <nil>
}
