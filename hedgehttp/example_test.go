package hedgehttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
		w.Header().Set("Content-Type", contentType)
		w.(http.Flusher).Flush()
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
	server := hanging("application/x-ndjson")
	defer server.Close()
	s := scheduler(hedge.WithAllMethods())
	client := &http.Client{Transport: hedgehttp.Transport(s, http.DefaultTransport)}
	show(client.Get(server.URL))
	// Output: "data: hello\n" <nil>
}

// POST requests are hedged if they have a name that the scheduler selects.
func ExampleWithName() {
	server := hanging("text/event-stream")
	defer server.Close()
	s := scheduler(hedge.WithReadOnlyMethods("/chat/Completions"))
	client := &http.Client{Transport: hedgehttp.Transport(s, nil, hedgehttp.WithName(func(r *http.Request) string {
		if r.URL.Path == "/v1/chat/completions" {
			return "/chat/Completions"
		}
		return ""
	}))}
	show(client.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader("{}")))
	// Output: "data: hello\n" <nil>
}

// Server-sent events of a GET request, of which the first comes at once.
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

// Hedges use separate connections.
func ExampleWithHedgeTransport() {
	server := hanging("application/x-ndjson")
	defer server.Close()
	s := scheduler(hedge.WithAllMethods())
	base := http.DefaultTransport.(*http.Transport)
	hedges := base.Clone()
	client := &http.Client{Transport: hedgehttp.Transport(s, base, hedgehttp.WithHedgeTransport(hedges))}
	defer client.CloseIdleConnections()
	show(client.Get(server.URL))
	// Output: "data: hello\n" <nil>
}
