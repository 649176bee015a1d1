package hedgeotel_test

import (
	"fmt"

	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	hedgeotel "github.com/grpchedge/hedge/otel"
)

// A client with metrics for its calls, attempts and hedges.
func Example() {
	meters := noop.NewMeterProvider() // the SDK's, in a program
	telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: meters})
	if err != nil {
		panic(err)
	}
	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*"), telemetry)
	if err != nil {
		panic(err)
	}
	plugin := opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: meters}}
	options := hedgeotel.DialOptions(s, plugin, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("dns:///shop:443", options...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output:
	// dns:///shop:443
}
