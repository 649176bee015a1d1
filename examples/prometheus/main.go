// Command prometheus exports the counts and latencies of a scheduler to Prometheus without
// OpenTelemetry: a collector over the rows of Methods. Module otel/ has more, under gRPC's names.
//
//	cd examples && go run ./prometheus
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stats"
)

// collector reads a scheduler whenever Prometheus scrapes.
type collector struct{ s *hedge.Scheduler }

var labels = []string{"target", "method"}

// counters and gauges have the metrics of a method. Counts begin with the method's first call and fall
// to 0 when an idle method is removed from memory, which rate() takes for a restart.
var counters = map[*prometheus.Desc]func(stats.Method) int64{
	desc("calls_total", "Calls."):                           func(m stats.Method) int64 { return m.Calls },
	desc("sent_total", "Hedges sent."):                      func(m stats.Method) int64 { return m.Hedges },
	desc("won_total", "Calls that a hedge answered."):       func(m stats.Method) int64 { return m.HedgeWins },
	desc("no_budget_total", "Hedges the budget held back."): func(m stats.Method) int64 { return m.BudgetExhausted },
}

var gauges = map[*prometheus.Desc]func(stats.Method) time.Duration{
	desc("delay_seconds", "Age at which a call gets a hedge."): func(m stats.Method) time.Duration { return m.Delay },
	desc("p99_seconds", "p99 of callers."):                     func(m stats.Method) time.Duration { return m.Recent.P99 },
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("hedge_"+name, help, labels, nil)
}

func (c collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.s.Methods() {
		for desc, of := range counters {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(of(m)), m.Names.Target, m.Names.Method)
		}
		for desc, of := range gauges {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, of(m).Seconds(), m.Names.Target, m.Names.Method)
		}
	}
}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	s, err := hedge.New(hedge.WithAllMethods())
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(collector{s}); err != nil {
		return err
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	for range 1000 { // a gRPC client makes its calls with interceptor.DialOptions(s)
		if _, err := hedge.Do(context.Background(), s, "dns:///shop:443", "/shop.Catalog/Get", get); err != nil {
			return err
		}
	}
	response, err := http.Get(server.URL)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			fmt.Fprint(w, line)
		}
	}
	return nil
}

// get takes 1 ms, and 30 ms once in 20 times.
func get(ctx context.Context) (string, error) {
	latency := time.Millisecond
	if rand.IntN(20) == 0 {
		latency = 30 * time.Millisecond
	}
	select {
	case <-time.After(latency):
		return "a book", nil
	case <-ctx.Done(): // another attempt has answered
		return "", ctx.Err()
	}
}
