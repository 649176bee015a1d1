package hedge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge"
)

// The first copy of an HTTP request hangs. The body is read after Do has returned: the winner's
// context stays valid until the caller's ends.
func ExampleDo_http() {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			<-r.Context().Done() // until the other copy has won
			return
		}
		fmt.Fprint(w, "hello")
	}))
	defer server.Close()

	// Up to two hedges, the first after 5 ms until latencies are learned.
	s := must(hedge.New(hedge.WithReadOnlyMethods("/greeter/GET"), hedge.WithWarmup(20, 5*time.Millisecond)))

	get := func(ctx context.Context) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return nil, err
		}
		return http.DefaultClient.Do(request)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	response, err := hedge.Do(ctx, s, server.URL, "/greeter/GET", get)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Println(string(body), err)
	// Output: hello <nil>
}
