package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"
)

// prometheusServer is a Prometheus that runs.
type prometheusServer struct{ url string }

// startPrometheus starts one that has scraped something each minute until now, and evaluates rules.
// Without one the test is skipped, or fails if HEDGE_NEEDS_PROMETHEUS is set.
func startPrometheus(t *testing.T, scrapes []string, rules string) prometheusServer {
	t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		if os.Getenv("HEDGE_NEEDS_PROMETHEUS") != "" {
			t.Fatal("HEDGE_NEEDS_PROMETHEUS is set, and no prometheus is installed")
		}
		t.Skip("no prometheus is installed, so alerts and dashboard are not tested; on Debian: apt-get install prometheus")
	}
	directory := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var samples strings.Builder
	now := time.Now()
	for i, scrape := range scrapes {
		at := now.Add(time.Duration(i-len(scrapes)+1) * time.Minute).Unix()
		for line := range strings.Lines(scrape) {
			if !strings.HasPrefix(line, "#") {
				fmt.Fprintf(&samples, "%s %d\n", strings.TrimSpace(line), at)
			}
		}
	}
	samples.WriteString("# EOF\n")
	data := filepath.Join(directory, "data")
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics",
		file("samples", samples.String()), data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	config := fmt.Sprintf("global: {evaluation_interval: 1s}\nrule_files: [%q]\n", file("rules.yml", rules))
	output, err := os.Create(filepath.Join(directory, "output"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, "prometheus", "--config.file="+file("prometheus.yml", config),
		"--storage.tsdb.path="+data, "--web.listen-address="+address)
	server.Stdout, server.Stderr = output, output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait()
		if text, _ := os.ReadFile(output.Name()); t.Failed() {
			t.Logf("%s", text)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	p := prometheusServer{"http://" + address}
	p.wait(t, "is not ready", func() bool {
		response, err := http.Get(p.url + "/-/ready")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	})
	return p
}

// wait waits for a minute at most until something holds.
func (p prometheusServer) wait(t *testing.T, problem string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(100*ms)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("prometheus " + problem)
		}
	}
}

// result is a series of an answer: one value, or several.
type result struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

func (p prometheusServer) get(t *testing.T, path string, query url.Values, into any) {
	t.Helper()
	response, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	answer := struct{ Data any }{into}
	if err := json.Unmarshal(body, &answer); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %v: %s", path, query, body)
	}
}

// query returns the value of a query now, or each minute of a time that ends now.
func (p prometheusServer) query(t *testing.T, expr string, over time.Duration) []result {
	t.Helper()
	var data struct{ Result []result }
	now := time.Now()
	p.get(t, "/api/v1/query_range", url.Values{"query": {expr}, "step": {"60"},
		"start": {fmt.Sprint(now.Add(-over).Unix())}, "end": {fmt.Sprint(now.Unix())}}, &data)
	return data.Result
}

// firing returns the alerts that fire, with their targets.
func (p prometheusServer) firing(t *testing.T) (alerts []string) {
	t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.get(t, "/api/v1/alerts", nil, &data)
	for _, a := range data.Alerts {
		if a.State == "firing" {
			alerts = append(alerts, a.Labels["alertname"]+" "+a.Labels["grpc_target"])
		}
	}
	slices.Sort(alerts)
	return slices.Compact(alerts)
}

type rule struct{ Alert, Expr, For string }

// TestPrometheus_AlertsFireAndPanelsAnswer gives a real Prometheus the scrapes of ninety minutes.
// Each alert fires for the target with its trouble, once its condition has held for the alert's
// time, and no other alert fires; alerts are evaluated without waiting. Every query of the
// dashboard has an answer in the last twenty minutes.
func TestPrometheus_AlertsFireAndPanelsAnswer(t *testing.T) {
	text, err := os.ReadFile("../../../otel/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	scrapes, healthy, counting := scenario(t)
	p := startPrometheus(t, scrapes, regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAllString(string(text), ""))
	want := []string{"HedgingBackendSilent " + healthy, "HedgingResetsSpent " + counting}
	for _, tr := range troubles {
		want = append(want, tr.alert+" "+tr.target)
	}
	slices.Sort(want)
	var got []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("alerts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
	p.wait(t, "has other alerts", func() bool { got = p.firing(t); return slices.Equal(got, want) })

	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Groups[0].Rules {
		lasts, _ := time.ParseDuration(r.For)
		for _, alert := range want {
			name, target, _ := strings.Cut(alert, " ")
			if name != r.Alert {
				continue
			}
			held := 0
			for _, series := range p.query(t, r.Expr, lasts) {
				if series.Metric["grpc_target"] == target {
					held = max(held, len(series.Values))
				}
			}
			if held != int(lasts/time.Minute)+1 {
				t.Errorf("%s held for %d minutes of %v", alert, held, lasts)
			}
		}
	}

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err = os.ReadFile("../../../otel/dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$target", ".*", "$method", ".*", "$__rate_interval", "4m")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if len(p.query(t, variables.Replace(target.Expr), 20*time.Minute)) == 0 {
				t.Errorf("%s: nothing from %s", panel.Title, target.Expr)
			}
		}
	}
}
