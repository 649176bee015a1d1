package otel_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"go.yaml.in/yaml/v2"
)

// prometheusServer is a real Prometheus, without its server: scrapes are parsed, stored and queried by its own packages.
type prometheusServer struct {
	engine    *promql.Engine
	db        storage.Queryable
	now       time.Time
	exemplars map[string]int // by the name of the series
}

// newPrometheus stores scrapes a minute apart, the last of them taken now.
func newPrometheus(t *testing.T, scrapes [][]byte) *prometheusServer {
	t.Helper()
	options := tsdb.DefaultOptions()
	options.NoLockfile = true
	db, err := tsdb.Open(t.TempDir(), nil, nil, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	t.Cleanup(func() { _, _ = db.Close(), engine.Close() })
	p := &prometheusServer{engine: engine, db: db, now: time.Now(), exemplars: map[string]int{}}
	for i, scrape := range scrapes {
		p.exemplars = map[string]int{}
		p.store(t, db, scrape, p.now.Add(time.Duration(i-len(scrapes)+1)*time.Minute))
	}
	return p
}

func (p *prometheusServer) store(t *testing.T, db *tsdb.DB, scrape []byte, at time.Time) {
	t.Helper()
	parse := textparse.NewOpenMetricsParser(scrape, labels.NewSymbolTable())
	app := db.Appender(t.Context())
	for {
		entry, err := parse.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parse.Series()
		var series labels.Labels
		parse.Labels(&series)
		if _, err := app.Append(0, series, at.UnixMilli(), value); err != nil {
			t.Fatal(err)
		}
		var e exemplar.Exemplar
		if parse.Exemplar(&e) && e.Labels.Get("trace_id") != "" {
			p.exemplars[series.Get("__name__")]++
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// query returns what a query returns now, in the order of its labels.
func (p *prometheusServer) query(t *testing.T, expr string) promql.Vector {
	t.Helper()
	query, err := p.engine.NewInstantQuery(t.Context(), p.db, nil, expr, p.now)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return append(promql.Vector{}, vector...)
}

type titled struct{ title, expr string }

// dashboardQueries returns the queries of the dashboard, with its variables replaced as Grafana does for "All".
func dashboardQueries(t *testing.T) []titled {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("../../../otel/dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$target", ".*", "$method", ".*", "$__rate_interval", "4m")
	var queries []titled
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries = append(queries, titled{p.Title, variables.Replace(target.Expr)})
		}
	}
	if len(queries) < 10 {
		t.Fatalf("%d queries", len(queries))
	}
	return queries
}

func alertQueries(t *testing.T) []titled {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text, err := os.ReadFile("../../../otel/alerts.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	var queries []titled
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			queries = append(queries, titled{r.Alert, r.Expr})
		}
	}
	if len(queries) < 3 {
		t.Fatalf("%d alerts", len(queries))
	}
	return queries
}

// metricNames returns the names of the series that a query reads.
func metricNames(t *testing.T, expr string) []string {
	t.Helper()
	e, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	return names
}
