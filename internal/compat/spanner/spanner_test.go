package spanner_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stream"
)

const (
	ms       = time.Millisecond
	backends = 4
	rows     = 100
	table    = "t"
	scheme   = "spanner"
	prefix   = "/google.spanner.v1.Spanner/"
)

// reading are the methods of transactions that only read.
var reading = []string{prefix + "StreamingRead", prefix + "ExecuteStreamingSql", prefix + "BeginTransaction"}

// client returns one with a pool of connections of its own, as it makes them: Spanner's
// interceptors come inside of ours.
func (s *service) client(t *testing.T, options ...grpc.DialOption) *spanner.Client {
	t.Helper()
	clientOptions := []option.ClientOption{option.WithEndpoint(scheme + ":///servers")}
	for _, o := range s.dialOptions(options) {
		clientOptions = append(clientOptions, option.WithGRPCDialOption(o))
	}
	t.Setenv("SPANNER_EMULATOR_HOST", "servers") // no credentials, no TLS, no metrics
	client, err := spanner.NewClient(t.Context(), "projects/p/instances/i/databases/d", clientOptions...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (s *service) hedged(t *testing.T, options ...hedge.Option) (*spanner.Client, *hedge.Scheduler) {
	t.Helper()
	scheduler := hedgetest.New(t, options...)
	return s.client(t, grpc.WithChainUnaryInterceptor(interceptor.Unary(scheduler)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(scheduler))), scheduler
}

func value(n int) string { return fmt.Sprint("value ", n) }

func fill(t *testing.T, client *spanner.Client) {
	t.Helper()
	var all []*spanner.Mutation
	for n := range rows {
		all = append(all, spanner.Insert(table, []string{"id", "value"}, []any{n, value(n)}))
	}
	if _, err := client.Apply(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// read reads a row in a read-only transaction, by its key or by a query, and checks it.
func read(ctx context.Context, client *spanner.Client, n int) error {
	txn := client.ReadOnlyTransaction()
	defer txn.Close()
	var got string
	if n%2 == 0 {
		row, err := txn.ReadRow(ctx, table, spanner.Key{n}, []string{"value"})
		if err == nil {
			err = row.Column(0, &got)
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", n, err)
		}
	} else {
		err := txn.Query(ctx, spanner.Statement{
			SQL: "SELECT value FROM " + table + " WHERE id = @id", Params: map[string]any{"id": n},
		}).Do(func(r *spanner.Row) error { return r.Column(0, &got) })
		if err != nil {
			return fmt.Errorf("row %d: %w", n, err)
		}
	}
	if got != value(n) {
		return fmt.Errorf("row %d: %q", n, got)
	}
	return nil
}

func p99(t *testing.T, client *spanner.Client, reads, atOnce int) time.Duration {
	return hedgetest.P99(t, reads, atOnce, func(n int) error { return read(t.Context(), client, n%rows) })
}

// TestReadOnlyTransactions measures the tail of read-only transactions with hedging, as a share of
// plain: there is no gain unless BeginTransaction is hedged too.
func TestReadOnlyTransactions(t *testing.T) {
	const reads, atOnce = 3000, 16
	d := startDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		s := startService(t, d)
		plainClient := s.client(t)
		fill(t, plainClient)
		plain := p99(t, plainClient, reads, atOnce)
		for _, tc := range []struct {
			methods     []string
			from, share float64 // of plain's 99th percentile
		}{
			{reading[:2], 0.5, 1.2},
			{reading, 0, 0.06},
		} {
			client, scheduler := s.hedged(t, hedge.WithReadOnlyMethods(tc.methods...))
			hedged := p99(t, client, reads, atOnce)
			stats, left := scheduler.Stats(), float64(hedged)/float64(plain)
			t.Logf("%d methods: 99th percentile plain %v, hedged %v, %.3f of it; %d hedges, %d won, %.1f%% of %d calls",
				len(tc.methods), plain, hedged, left, stats.Hedges, stats.HedgeWins, 100*stats.HedgeRate(), stats.Calls)
			if left < tc.from || left > tc.share || stats.HedgeWins == 0 || stats.HedgeRate() > 0.15 {
				t.Errorf("hedging leaves %.3f, want %v to %v; %+v", left, tc.from, tc.share, stats)
			}
		}
	})
}

// TestTransactions expects each hedge to carry its primary's request id, so that the service treats
// both as one request. Read-write and read-only transactions share two methods. The context of
// read-write transactions turns hedging off.
func TestTransactions(t *testing.T) {
	d := startDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		s := startService(t, d)
		fill(t, s.client(t))
		client, scheduler := s.hedged(t, hedge.WithReadOnlyMethods(reading...))
		p99(t, client, 1000, 16)
		synctest.Wait()
		before := scheduler.Stats()
		for n := range 300 {
			_, err := client.ReadWriteTransaction(hedge.NewContext(t.Context(), hedge.Off()),
				func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
					if _, err := txn.ReadRow(ctx, table, spanner.Key{n % rows}, []string{"value"}); err != nil {
						return err
					}
					return txn.BufferWrite(
						[]*spanner.Mutation{spanner.Update(table, []string{"id", "value"}, []any{n % rows, value(n)})})
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		stats := scheduler.Stats()
		t.Logf("%d calls, %d of them off, %d hedges", stats.Calls-before.Calls, stats.Off-before.Off,
			stats.Hedges-before.Hedges)
		if stats.Hedges != before.Hedges || stats.Off-before.Off < 300 {
			t.Errorf("before %+v, after %+v", before, stats)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		hedges := 0
		for id, numbers := range s.ids {
			slices.Sort(numbers)
			hedges += len(numbers) - 1
			for n, number := range numbers {
				if number != fmt.Sprint(n) {
					t.Errorf("attempts with the id %s: %v", id, numbers)
				}
			}
		}
		if int64(hedges) != stats.Hedges || hedges == 0 {
			t.Errorf("%d hedges have the id of a primary; %+v", hedges, stats)
		}
	})
}
