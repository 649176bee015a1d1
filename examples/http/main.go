// Command http reads chat completions, streamed as server-sent events, without and with hedging.
// The server's first token is sometimes late. Hedging waits for the first byte of the body, because
// the response headers come at once.
//
//	cd examples && go run ./http
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
)

const (
	completions = 1_500
	tokens      = 5 // of each completion
	concurrency = 20
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(complete)}
	go server.Serve(listener)
	defer server.Close()
	url := "http://" + listener.Addr().String() + "/v1/chat/completions"

	// A completion only computes an answer, so it may safely run twice. POST requests are hedged
	// because a pattern selects them.
	s, err := hedge.New(hedge.WithReadOnlyMethods("POST /v1/chat/completions"))
	if err != nil {
		return err
	}
	base := &http.Transport{MaxIdleConnsPerHost: 2 * concurrency} // a hedge that loses closes its HTTP/1.1 connection
	defer base.CloseIdleConnections()
	plain, err := measure(url, base)
	if err != nil {
		return err
	}
	hedged, err := measure(url, hedgehttp.Transport(s, base))
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "%d completions of %d tokens, %d at a time. The first token takes 10 ms, and 150 ms in one "+
		"attempt of fifty.\n\n", completions, tokens, concurrency)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "time to first token\tp50\tp99")
	fmt.Fprintf(table, "without hedging\t%v\t%v\n", percentile(plain, 50), percentile(plain, 99))
	fmt.Fprintf(table, "with hedging\t%v\t%v\n", percentile(hedged, 50), percentile(hedged, 99))
	table.Flush()
	stats := s.Stats()
	fmt.Fprintf(w, "\nExtra load: %.1f%%. %d hedges were sent, %d answered first.\n", 100*stats.HedgeRate(),
		stats.Hedges, stats.HedgeWins)
	return nil
}

// measure reads all completions and returns how long each took to its first token.
func measure(url string, transport http.RoundTripper) ([]time.Duration, error) {
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	latencies := make([]time.Duration, completions)
	errs := make([]error, concurrency)
	var wg sync.WaitGroup
	for reader := range concurrency {
		wg.Go(func() {
			for i := reader; i < completions && errs[reader] == nil; i += concurrency {
				latencies[i], errs[reader] = read(client, url)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(latencies)
	return latencies, nil
}

// read reads one completion and returns how long its first token took.
func read(client *http.Client, url string) (first time.Duration, err error) {
	start := time.Now()
	response, err := client.Post(url, "application/json",
		strings.NewReader(`{"stream": true, "messages": [{"role": "user", "content": "Hello"}]}`))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	received := 0
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		switch data, ok := strings.CutPrefix(lines.Text(), "data: "); {
		case !ok:
		case data == "[DONE]" && received == tokens:
			return first, nil
		default:
			if received++; received == 1 {
				first = time.Since(start)
			}
		}
	}
	return 0, fmt.Errorf("%d of %d tokens", received, tokens)
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[len(sorted)*p/100].Round(100 * time.Microsecond)
}

// complete is the server: it sends headers at once, and tokens later.
func complete(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	wait := 10 * time.Millisecond
	if rand.IntN(50) == 0 {
		wait = 150 * time.Millisecond
	}
	for n := range tokens {
		select {
		case <-time.After(wait):
		case <-r.Context().Done(): // the other attempt has won
			return
		}
		fmt.Fprintf(w, "data: {\"choices\": [{\"delta\": {\"content\": \"token %d\"}}]}\n\n", n)
		w.(http.Flusher).Flush()
		wait = time.Millisecond
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
