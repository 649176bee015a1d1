package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestLoad_RunHTTP has a server that is slow at each fiftieth request, and answers request 7 with
// another id. Both clients count their replies.
func TestLoad_RunHTTP(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Id")
		if len(id) > 2 && id[len(id)-2:] == "50" && r.Header.Get("Hedge-Attempt") == "" {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		if id == "7" {
			id = "8"
		}
		w.Header().Set("Id", id)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	load := Load{Callers: 4, For: time.Second, Rate: 500}
	for _, budget := range []float64{plain, 10} {
		result, err := load.RunHTTP(t.Context(), []string{server.Listener.Addr().String()}, tcp, budget)
		if err != nil {
			t.Fatal(err)
		}
		if result.Failed != 1 || result.Wrong != 1 || result.Calls < 10 || result.Wire.Connections != 1 ||
			result.Target.Hedges > 0 != (result.Wire.Resets > 0) || budget == plain && result.Target.Hedges > 0 {
			t.Errorf("budget %v: %+v, want one wrong reply and one connection", budget, result)
		}
	}
}
