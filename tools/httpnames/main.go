// Command httpnames writes the dashboard or the alerts of gRPC for the metrics of package hedgehttp,
// without what only gRPC has. "make generate" writes otel/dashboard-http.json and
// otel/alerts-http.yml with it, and "make lint" fails where these differ.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "usage: httpnames dashboard.json|alerts.yml") }
	flag.Parse()
	text, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	names := strings.NewReplacer("grpc_client", "http_client", "grpc_target", "http_hedge_target",
		"grpc_method", "http_hedge_method", "grpc_hedge", "http_hedge", "grpc-hedging", "http-hedging",
		`"title": "Hedging"`, `"title": "Hedging of HTTP"`, `"grpc"`, `"http"`)
	renamed := names.Replace(string(text))
	if filepath.Ext(flag.Arg(0)) == ".yml" {
		fmt.Print(alerts(renamed))
		return
	}
	board, err := dashboard(renamed)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(board)
}

// onlyGRPC matches the metrics of gRPC's plugin and of package balancer.
var onlyGRPC = regexp.MustCompile(`http_client_(call_duration|attempt_duration|hedge_silent)`)

// alerts returns the alerts on metrics that exist for HTTP.
func alerts(text string) string {
	const start = "      - alert: "
	kept := strings.Split(text, start)[:1]
	for _, alert := range strings.Split(text, start)[1:] {
		if !onlyGRPC.MatchString(alert) {
			kept = append(kept, alert)
		}
	}
	return strings.Join(kept, start)
}

// dashboard returns the dashboard with the panels of metrics that exist for HTTP, two in a row.
func dashboard(text string) (string, error) {
	// The fields are in the order of dashboard.json.
	type panel struct {
		ID          int             `json:"id"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		Type        string          `json:"type"`
		Datasource  json.RawMessage `json:"datasource"`
		GridPos     struct {
			H int `json:"h"`
			W int `json:"w"`
			X int `json:"x"`
			Y int `json:"y"`
		} `json:"gridPos"`
		FieldConfig json.RawMessage `json:"fieldConfig"`
		Options     json.RawMessage `json:"options"`
		Targets     json.RawMessage `json:"targets"`
	}
	head, list, _ := strings.Cut(text, `"panels": `)
	list = strings.TrimSuffix(strings.TrimSpace(list), "}")
	var all, kept []panel
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		return "", err
	}
	for _, p := range all {
		if !onlyGRPC.Match(p.Targets) {
			n := len(kept)
			p.ID, p.GridPos.X, p.GridPos.Y = n+1, n%2*p.GridPos.W, n/2*p.GridPos.H
			kept = append(kept, p)
		}
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("  ", "  ")
	if err := encoder.Encode(kept); err != nil {
		return "", err
	}
	return head + `"panels": ` + strings.TrimSpace(out.String()) + "\n}", nil
}
