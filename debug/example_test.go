package debug_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
)

// Serve the page, and read it as curl does.
func ExampleHandler() {
	s, err := hedge.New(hedge.WithIdempotentOnly())
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/hedge/", debug.Handler(s))
	server := httptest.NewServer(mux)
	defer server.Close()

	response, err := http.Get(server.URL + "/debug/hedge/")
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	lines := strings.Split(string(text), "\n")
	fmt.Println(strings.Join(lines[1:3], "\n"))
	// Output:
	// failed lately: 0 of 0 calls
	// 0 calls, 0 hedged, extra load 0.0% of a budget of 10%; hedges answered 0.0% of hedged calls
}
