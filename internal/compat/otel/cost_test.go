//go:build unix

package otel_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// BenchmarkEverythingOn makes calls that need no hedge in turns: through a client with gRPC's plugin alone, and through one
// that hedges with everything on, and one that hedges with nothing set but the plugin. It reports the throughput of the latter
// two as shares of the first's, the medians of all turns: by the clock, and by the processor time that client and server took,
// which other work on the machine disturbs less.
func BenchmarkEverythingOn(b *testing.B) {
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprintf("traces=%t", traced), func(b *testing.B) { everythingOn(b, traced) })
	}
}

func everythingOn(b *testing.B, traced bool) {
	tel := &backend{meters: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), tracers: trace.NewTracerProvider()}
	plugin := tel.plugin()
	if !traced {
		plugin = opentelemetry.Options{MetricsOptions: plugin.MetricsOptions}
	}
	telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: tel.meters})
	if err != nil {
		b.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	newScheduler := func(options ...hedge.Option) *hedge.Scheduler {
		s := hedgetest.All(b, append(options, hedge.WithMinDelay(time.Second))...)
		return s
	}
	s := newScheduler(hedge.WithLogger(logger), telemetry)
	quiet := newScheduler()
	cluster := testserver.StartT(b, testserver.Config{CountsOnly: true})
	dial := func(options ...grpc.DialOption) testpb.TestServiceClient {
		conn := cluster.ClientT(b, options...)
		testserver.ConnectT(b, conn)
		return testpb.NewTestServiceClient(conn)
	}
	clients := []testpb.TestServiceClient{
		dial(opentelemetry.DialOption(plugin)),
		dial(hedgeotel.DialOptions(s, plugin)...),
		dial(opentelemetry.DialOption(plugin), grpc.WithChainUnaryInterceptor(interceptor.Unary(quiet))),
	}
	const turn = 300
	calls := func(c testpb.TestServiceClient) (took [2]time.Duration) {
		began, used := time.Now(), processorTime()
		for n := range turn {
			if _, err := c.Unary(context.Background(), &testpb.Request{Id: uint64(n)}); err != nil {
				b.Fatal(err)
			}
		}
		return [2]time.Duration{time.Since(began), processorTime() - used}
	}
	var everything, nothing [2][]float64
	turns := 0
	for b.Loop() {
		took := [3][2]time.Duration{}
		for i := range clients { // each is first, second and last in turn
			i = (i + turns) % len(clients)
			took[i] = calls(clients[i])
		}
		turns++
		for of := range everything {
			everything[of] = append(everything[of], float64(took[0][of])/float64(took[1][of]))
			nothing[of] = append(nothing[of], float64(took[0][of])/float64(took[2][of]))
		}
	}
	for of, name := range []string{"clock", "processor"} {
		b.ReportMetric(median(everything[of]), "everything/"+name)
		b.ReportMetric(median(nothing[of]), "nothing/"+name)
	}
	if stats := s.Stats(); stats.Hedges > stats.Calls/100 {
		b.Errorf("%+v", stats)
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
