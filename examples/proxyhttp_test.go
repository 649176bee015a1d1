package examples_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestProxy_HTTP makes requests to a server directly and through the proxy.
func TestProxy_HTTP(t *testing.T) {
	ended := make(chan bool, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/trailer", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		fmt.Fprint(w, r.Method, r.URL.RawQuery)
		w.Header().Set("Sum", "17")
	})
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, string(body), err)
	})
	mux.HandleFunc("/compressed", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "text")
		_ = z.Close()
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done() // until the client has gone
		ended <- true
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		_ = rw.Flush()
		line, err := rw.ReadString('\n')
		fmt.Fprint(rw, line, err)
		_ = rw.Flush()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	_, proxy := startProxy(t, "localhost:1", server.URL)

	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	for _, tc := range []struct {
		method, path, body, upgrade string
		bytes                       int // of the response that are read; 0: all
	}{
		{method: "GET", path: "/trailer?q=1&r=%2f"},
		{method: "HEAD", path: "/compressed"},
		{method: "POST", path: "/read", body: "question"},
		{method: "PUT", path: "/read", body: "change"},
		{method: "GET", path: "/compressed"},
		{method: "GET", path: "/none"},
		{method: "GET", path: "/a/../read"}, // the mux redirects
		{method: "GET", path: "/events", bytes: 9},
		{method: "GET", path: "/upgrade", upgrade: "echo"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			var results []string
			for _, to := range []string{server.URL, "http://" + proxy} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, tc.method, to+tc.path, strings.NewReader(tc.body))
				if err != nil {
					t.Fatal(err)
				}
				if tc.upgrade != "" {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", tc.upgrade)
				}
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if stream, ok := res.Body.(io.Writer); ok && tc.upgrade != "" {
					fmt.Fprintln(stream, "hello")
				}
				body := io.Reader(res.Body)
				if tc.bytes > 0 {
					body = io.LimitReader(body, int64(tc.bytes))
				}
				read, err := io.ReadAll(body)
				_ = res.Body.Close()
				if tc.bytes > 0 {
					<-ended
				}
				res.Header.Del("Date")
				results = append(results, fmt.Sprintf("%s %q %d %v %v %v", res.Status, read, res.ContentLength, err,
					res.Header, res.Trailer))
			}
			if results[0] != results[1] {
				t.Errorf("through the proxy: %s\ndirectly:          %s", results[1], results[0])
			}
		})
	}
}
