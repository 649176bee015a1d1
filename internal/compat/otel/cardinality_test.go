package otel_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
)

// TestTelemetry_Cardinality has fifty methods where ten are told apart.
func TestTelemetry_Cardinality(t *testing.T) {
	const methods, most = 50, 10
	var scrape []byte
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		telemetry, err := hedgeotel.New(hedgeotel.Options{MeterProvider: b.meters, MaxMethods: most})
		if err != nil {
			t.Fatal(err)
		}
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400), telemetry)
		for n := range methods {
			_, err := hedge.Do(t.Context(), s, "shop:443", fmt.Sprintf("/shop.Items/Get%d", n), func(context.Context) (int, error) {
				time.Sleep(5 * ms)
				return 0, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * ms) // the losers end
		scrape = b.scrape()
	})
	p := newPrometheus(t, [][]byte{scrape})
	for query, want := range map[string]float64{
		`count(grpc_client_call_hedges_count)`:                                       most + 1,
		`count(grpc_client_hedge_calls_total)`:                                       most + 1,
		`sum(grpc_client_call_hedges_sum)`:                                           methods,
		`sum(grpc_client_hedge_calls_total)`:                                         methods,
		`sum(grpc_client_hedge_calls_total{grpc_method="other"})`:                    methods - most,
		`sum(grpc_client_hedge_decisions_total{grpc_hedge_outcome="lost"})`:          methods,
		`count(grpc_client_hedge_calls_total{grpc_target="dns:///shop:443"})`:        most,
		`count(grpc_client_hedge_delay_seconds{grpc_method=~"shop.Items/Get[0-9]"})`: most,
	} {
		if got := p.query(t, query); len(got) != 1 || got[0].F != want {
			t.Errorf("%s is %v, want %v", query, got, want)
		}
	}
}
