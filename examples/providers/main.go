// Command providers asks a second provider of a language model when the first one is slow or fails.
// The two have different keys, paths, models and formats. What counts is the time to the first
// token.
//
//	cd examples && go run ./providers
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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
	calls       = 1_000
	concurrency = 10
	slow, fails = 20, 50                 // one answer in that many begins late, or is an error
	promised    = 100 * time.Millisecond // until the first token
	answer      = "All happy families are alike."
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	alpha := httptest.NewServer(&provider{path: "/v1/chat/completions", header: "Authorization", key: "Bearer A",
		model: "alpha-1", event: `{"choices": [{"delta": {"content": %q}}]}`})
	defer alpha.Close()
	beta := httptest.NewServer(&provider{path: "/v1/messages", header: "X-Api-Key", key: "B",
		model: "beta-large", event: `{"type": "content_block_delta", "delta": {"text": %q}}`})
	defer beta.Close()

	// A completion may be asked for twice, at the price of two. A budget of 20% limits that.
	s, err := hedge.New(hedge.WithReadOnlyMethods("POST /v1/chat/completions"), hedge.WithFailover(),
		hedge.WithTrigger(hedge.Auto(hedge.NoLaterThan(promised))), hedge.WithBudgetPercent(20))
	if err != nil {
		return err
	}
	base := &http.Transport{MaxIdleConnsPerHost: 2 * concurrency} // a hedge that loses closes its HTTP/1.1 connection
	defer base.CloseIdleConnections()
	hedged := hedgehttp.Transport(s, base,
		hedgehttp.WithHedgeRequest(func(n int, r *http.Request) (*http.Request, error) {
			if n%2 == 0 {
				return r, nil // to the first provider again
			}
			return requestOf(beta.URL, r)
		}))

	fmt.Fprintf(w, "%d questions, %d at a time. Of either provider, the first token takes 10 ms, 500 ms in one "+
		"attempt of\ntwenty, and one in fifty fails. The first token is promised within %v.\n\n",
		calls, concurrency, promised)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "time to first token\tp50\tp99\tfailed calls\tanswered by beta")
	for _, client := range []struct {
		name      string
		transport http.RoundTripper
	}{{"alpha alone", base}, {"alpha, hedges to beta", hedged}} {
		latencies, byBeta := measure(&http.Client{Transport: client.transport}, alpha.URL)
		if len(latencies) == 0 {
			return fmt.Errorf("%s: no answer", client.name)
		}
		fmt.Fprintf(table, "%s\t%v\t%v\t%d\t%d\n", client.name, percentile(latencies, 50),
			percentile(latencies, 99), calls-len(latencies), byBeta)
	}
	table.Flush()
	stats := s.Stats()
	fmt.Fprintf(w, "\nExtra load: %.1f%%. %d hedges were sent, %d answered first.\n", 100*stats.HedgeRate(),
		stats.Hedges, stats.HedgeWins)
	return nil
}

// alphaRequest and betaRequest are the bodies that the providers want.
type alphaRequest struct {
	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	Messages []message `json:"messages"`
}

type betaRequest struct {
	alphaRequest
	MaxTokens int `json:"max_tokens"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// requestOf makes a request to alpha one to beta. It does not pass on alpha's headers, which have
// its key.
func requestOf(beta string, alpha *http.Request) (*http.Request, error) {
	var body alphaRequest
	if err := json.NewDecoder(alpha.Body).Decode(&body); err != nil {
		return nil, err
	}
	body.Model = "beta-large"
	encoded, err := json.Marshal(betaRequest{body, 1000})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest("POST", beta+"/v1/messages", strings.NewReader(string(encoded)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Api-Key", "B")
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// measure asks all questions, and returns how long the first token of each answer took, and the
// number of answers by beta.
func measure(client *http.Client, url string) (latencies []time.Duration, byBeta int) {
	var mu sync.Mutex // guards the results
	var wg sync.WaitGroup
	for range concurrency {
		wg.Go(func() {
			for range calls / concurrency {
				first, by, err := ask(client, url)
				mu.Lock()
				if err == nil {
					latencies = append(latencies, first)
				}
				if by == "beta" {
					byBeta++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return latencies, byBeta
}

// ask reads an answer. It returns how long the first token took, and who answered.
func ask(client *http.Client, url string) (first time.Duration, by string, err error) {
	body, err := json.Marshal(alphaRequest{"alpha-1", true, []message{{"user", "How does it begin?"}}})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequest("POST", url+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer A")
	request.Header.Set("Content-Type", "application/json")
	start := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, "", fmt.Errorf("%s", response.Status)
	}
	by = "alpha"
	if response.Request.URL.Path == "/v1/messages" {
		by = "beta"
	}
	var text strings.Builder
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		first = cmp.Or(first, time.Since(start))
		token, err := tokenOf(by, data)
		if err != nil {
			return 0, by, err
		}
		text.WriteString(token)
	}
	if text.String() != answer {
		return 0, by, fmt.Errorf("the answer of %s is %q", by, text.String())
	}
	return first, by, nil
}

// tokenOf returns the token of an event of either provider.
func tokenOf(by, data string) (string, error) {
	var event struct {
		Choices []struct{ Delta struct{ Content string } } // of alpha
		Delta   struct{ Text string }                      // of beta
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return "", fmt.Errorf("%s: %w", by, err)
	}
	if by == "beta" {
		return event.Delta.Text, nil
	}
	if len(event.Choices) == 0 {
		return "", fmt.Errorf("%s: no choice in %s", by, data)
	}
	return event.Choices[0].Delta.Content, nil
}

func percentile(latencies []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[(len(sorted)*p-1)/100].Round(100 * time.Microsecond)
}

// provider is a fake provider: it checks the request, and streams the answer.
type provider struct{ path, header, key, model, event string }

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body betaRequest
	err := json.NewDecoder(r.Body).Decode(&body)
	switch {
	case r.URL.Path != p.path:
		http.NotFound(w, r)
		return
	case r.Header.Get(p.header) != p.key:
		http.Error(w, "wrong key", http.StatusUnauthorized)
		return
	case err != nil || body.Model != p.model:
		http.Error(w, "no such model: "+body.Model, http.StatusBadRequest)
		return
	case rand.IntN(fails) == 0:
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush() // headers come at once
	wait := 10 * time.Millisecond
	if rand.IntN(slow) == 0 {
		wait = 500 * time.Millisecond
	}
	for token := range strings.SplitAfterSeq(answer, " ") {
		select {
		case <-time.After(wait):
		case <-r.Context().Done(): // the other provider has won
			return
		}
		fmt.Fprintf(w, "data: "+p.event+"\n\n", token)
		w.(http.Flusher).Flush()
		wait = time.Millisecond
	}
}
