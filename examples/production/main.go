// Command production is a client as in production: three replicas (one stalls now and then), logging
// and retries around hedging, gRPC's metrics and hedging's for Prometheus, the debug page, and a
// rollout by a watched file.
//
//	cd examples && go run ./production
//
// HEDGE_DISABLED=1 in its environment starts it without hedges.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	hedgeconfig "github.com/grpchedge/hedge/config"
	hedgedebug "github.com/grpchedge/hedge/debug"
	hedgeotel "github.com/grpchedge/hedge/otel"
)

// stages are the contents of the file, in order. docs/rollout.md has more stages, of days instead
// of seconds; its last one keeps a control group of 1 percent, to go on measuring the gain. The first
// file has a mistake: the process starts without hedging, and recovers when the file does.
var stages = []struct{ name, file string }{
	{"a mistake", `{"readOnlyMethods": ["/helloworld.Greeter/*"`},
	{"dry run", `{"readOnlyMethods": ["/helloworld.Greeter/*"], "dryRun": true}`},
	{"control 99", `{"readOnlyMethods": ["/helloworld.Greeter/*"], "control": 99}`},
	{"control 0", `{"readOnlyMethods": ["/helloworld.Greeter/*"]}`},
}

const (
	calls = 800 // of each stage
	pace  = 2500 * time.Microsecond

	// maxAttempts of a call, its first one included, is more than all replicas fail while they start.
	maxAttempts = replicaCount*failuresAtStart + 1

	replicaCount, failuresAtStart = 3, 2
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder, err := os.MkdirTemp("", "hedge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "hedge.json")
	if err := os.WriteFile(file, []byte(stages[0].file), 0o600); err != nil {
		return err
	}
	replicas, stopReplicas, err := startReplicas(replicaCount)
	if err != nil {
		return err
	}
	defer stopReplicas()

	// One registry for Prometheus, and one meter provider for gRPC's plugin and for ours.
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return err
	}
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	defer meters.Shutdown(context.Background())

	s, data, err := newScheduler(file, meters)
	if err != nil {
		return err
	}
	updated := make(chan error, 1)
	go watch(ctx, file, data, s, updated)
	var seen seen
	conn, err := dial(s, meters, replicas, &seen)
	if err != nil {
		return err
	}
	defer conn.Close()
	url, stopHTTP, err := serveHTTP(registry, s)
	if err != nil {
		return err
	}
	defer stopHTTP()

	fmt.Fprintf(w, "Three replicas, one of which stalls for 100 ms of each second. %d calls in each stage, one "+
		"every %v.\n\n", calls, pace)
	if err := rollOut(w, ctx, file, s, updated, pb.NewGreeterClient(conn)); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d calls in the log, %d retries.\n", seen.calls.Load(), seen.retries.Load())
	return scrape(w, url)
}

// newScheduler returns a scheduler with the options of the file. It is off if the file is missing or
// has a mistake: running processes survive that, and a process that starts must too. Logs and metrics
// belong to the scheduler: updates keep them.
func newScheduler(file string, meters *metric.MeterProvider) (s *hedge.Scheduler, data []byte, err error) {
	telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: meters})
	if err != nil {
		return nil, nil, err
	}
	s, err = hedge.New(hedge.WithOff(true), telemetry, hedge.WithLogger(slog.Default()))
	if err != nil {
		return nil, nil, err
	}
	data, err = os.ReadFile(file)
	if err == nil {
		err = hedgeconfig.Update(s, data)
	}
	if err != nil {
		slog.Error("hedging: off until the file is mended", "error", err)
	}
	return s, data, nil
}

// seen counts calls and retries as interceptors outside hedging see them.
type seen struct{ calls, retries atomic.Int64 }

// dial connects to the replicas. Logging is outside retries, and retries are outside hedging: a
// call has one line in the log, and a call is made again if all its attempts failed. The plugin's
// grpc.client.call.duration includes all of that.
func dial(s *hedge.Scheduler, meters *metric.MeterProvider, replicas resolver.Builder,
	seen *seen) (*grpc.ClientConn, error) {
	logger := logging.LoggerFunc(func(ctx context.Context, level logging.Level, message string, fields ...any) {
		seen.calls.Add(1)
		slog.Log(ctx, slog.Level(level), message, fields...) // OK is below slog's default level
	})
	plugin := opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: meters}}
	return grpc.NewClient("replicas:///greeter", hedgeotel.DialOptions(s, plugin,
		grpc.WithChainUnaryInterceptor(
			logging.UnaryClientInterceptor(logger, logging.WithLogOnEvents(logging.FinishCall)),
			retry.UnaryClientInterceptor(retry.WithMax(maxAttempts), retry.WithCodes(codes.Unavailable),
				retry.WithOnRetryCallback(func(context.Context, uint, error) { seen.retries.Add(1) }))),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(balancer.ServiceConfig), // hedges go to another replica
		grpc.WithResolvers(replicas))...)                      // a real client has dns:/// and a name with several addresses
}

// serveHTTP serves the metrics and the debug page, on a port that is not public.
func serveHTTP(registry *prometheus.Registry, s *hedge.Scheduler) (url string, stop func() error, err error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/hedge/", hedgedebug.Handler(s))
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	return "http://" + listener.Addr().String(), server.Close, nil
}

// replace writes a file beside the old one and renames it: a file that is read while it is written has
// a mistake.
func replace(file, content string) error {
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// watch updates the scheduler when the content of the file is no longer last. After a mistake in the
// file the options in force stay, but "off": true takes effect. A file that cannot be read changes
// nothing. Both are logged. watch sends the error, nil once the options are in force, to updated, which
// has room for one, and never waits for a reader. A program that has a library for watching files uses
// that instead of a ticker.
func watch(ctx context.Context, file string, last []byte, s *hedge.Scheduler, updated chan error) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	unreadable := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		data, err := os.ReadFile(file)
		if err != nil && !unreadable {
			slog.Error("hedging: the file cannot be read, so the options stay", "error", err)
		}
		unreadable = err != nil
		if err != nil || bytes.Equal(data, last) {
			continue
		}
		last = data
		if err = hedgeconfig.Update(s, data); err != nil {
			slog.Error("hedging: the file has a mistake, so the options stay", "error", err)
		}
		select {
		case <-updated: // the last one has not been read
		default:
		}
		updated <- err
	}
}

// rollOut makes the calls of each stage, and prints their results.
func rollOut(w io.Writer, ctx context.Context, file string, s *hedge.Scheduler, updated <-chan error,
	client pb.GreeterClient) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "stage\tcalls\tp50\tp99\tp99 with hedges, predicted\thedges\twould be hedged")
	stage := func(name string) error {
		before := s.Stats()
		latencies, err := load(ctx, client)
		if err != nil {
			return err
		}
		after := s.Stats()
		predicted := s.Methods()[0].Choice.PredictedTail // there is one target with one method
		fmt.Fprintf(table, "%s\t%d\t%v\t%v\t%v\t%d\t%d\n", name, len(latencies), percentile(latencies, 50),
			percentile(latencies, 99),
			predicted.Round(100*time.Microsecond), after.Hedges-before.Hedges, after.DryRun-before.DryRun)
		return nil
	}
	for i, next := range stages {
		if i > 0 { // the first is in force already
			if err := replace(file, next.file); err != nil {
				return err
			}
			if err := <-updated; err != nil {
				return err
			}
		}
		if err := stage(next.name); err != nil {
			return err
		}
	}
	s.Pause() // for an operator in an incident: only Resume undoes it, not an update
	if err := stage("paused"); err != nil {
		return err
	}
	return table.Flush()
}

// load makes the calls of one stage, at a steady pace, and returns their latencies.
func load(ctx context.Context, client pb.GreeterClient) ([]time.Duration, error) {
	latencies := make([]time.Duration, calls)
	errs := make([]error, calls)
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	var wg sync.WaitGroup
	for i := range calls {
		<-ticks.C
		wg.Go(func() {
			start := time.Now()
			_, errs[i] = client.SayHello(ctx, &pb.HelloRequest{Name: "hedge"})
			latencies[i] = time.Since(start)
		})
	}
	wg.Wait()
	return latencies, errors.Join(errs...)
}

// percentile returns the given percentile, to a tenth of a millisecond.
func percentile(latencies []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[(len(sorted)*percent-1)/100].Round(100 * time.Microsecond)
}

// scrape prints some counters as Prometheus reads them, and the head of the debug page, as curl
// gets it.
func scrape(w io.Writer, url string) error {
	metrics, err := get(url + "/metrics")
	if err != nil {
		return err
	}
	for _, name := range []string{"grpc_client_call_duration_seconds_count", "grpc_client_attempt_duration_seconds_count",
		"grpc_client_hedge_calls_total", "grpc_client_hedge_sent_total"} {
		var sum float64
		for line := range strings.Lines(metrics) {
			if fields := strings.Fields(line); strings.HasPrefix(line, name+"{") {
				value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
				if err != nil {
					return err
				}
				sum += value
			}
		}
		fmt.Fprintf(w, "%s %v\n", name, sum)
	}
	page, err := get(url + "/debug/hedge/")
	if err != nil {
		return err
	}
	head, _, _ := strings.Cut(page, "\n\n")
	fmt.Fprintf(w, "\nThe page: %s\n\n", head)
	return nil
}

func get(url string) (string, error) {
	response, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(url + ": " + response.Status)
	}
	return string(body), err
}

// startReplicas starts servers on loopback and returns their addresses. The first one stalls from
// time to time.
func startReplicas(n int) (addresses resolver.Builder, stop func(), err error) {
	var state resolver.State
	var servers []*grpc.Server
	stop = func() {
		for _, server := range servers {
			server.Stop()
		}
	}
	for i := range n {
		listener, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			stop()
			return nil, nil, err
		}
		server := grpc.NewServer()
		pb.RegisterGreeterServer(server, &greeter{start: time.Now(), stalls: i == 0})
		go server.Serve(listener)
		servers = append(servers, server)
		state.Addresses = append(state.Addresses, resolver.Address{Addr: listener.Addr().String()})
	}
	builder := manual.NewBuilderWithScheme("replicas")
	builder.InitialState(state)
	return builder, stop, nil
}

// greeter is a replica that answers in 2 ms. If it stalls, it is silent for the last 100 ms of each
// second. Its first two attempts fail, as if it were starting.
type greeter struct {
	pb.UnimplementedGreeterServer
	start  time.Time
	stalls bool
	calls  atomic.Int64
}

func (g *greeter) SayHello(ctx context.Context, in *pb.HelloRequest) (*pb.HelloReply, error) {
	if g.calls.Add(1) <= failuresAtStart {
		return nil, status.Error(codes.Unavailable, "try again")
	}
	delay := 2 * time.Millisecond
	if since := time.Since(g.start) % time.Second; g.stalls && since > 900*time.Millisecond {
		delay += time.Second - since
	}
	select {
	case <-time.After(delay):
		return &pb.HelloReply{Message: "Hello " + in.GetName()}, nil
	case <-ctx.Done(): // another attempt has answered: stop the work
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
