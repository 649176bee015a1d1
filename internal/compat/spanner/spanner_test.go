package spanner_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

// client returns one with a pool of connections of its own, as it makes them: Spanner's interceptors come inside of ours.
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

// p99 reads many rows, some at a time, and returns the 99th percentile of what a read takes.
func p99(t *testing.T, client *spanner.Client, reads, atOnce int) time.Duration {
	t.Helper()
	took := make([]time.Duration, reads)
	var all sync.WaitGroup
	for w := range atOnce {
		all.Go(func() {
			for i := w; i < reads; i += atOnce {
				began := time.Now()
				if err := read(t.Context(), client, i%rows); err != nil {
					t.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[len(took)*99/100]
}

// TestReadOnlyTransactions measures what hedging leaves of the tail of transactions that only read: nothing is gained
// unless their BeginTransaction is hedged too.
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

// TestRequestIDs expects each hedge to carry the request id of its primary, so that the service takes both for one request.
func TestRequestIDs(t *testing.T) {
	d := startDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		s := startService(t, d)
		fill(t, s.client(t))
		client, scheduler := s.hedged(t, hedge.WithReadOnlyMethods(reading...))
		p99(t, client, 1000, 16)
		synctest.Wait()
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
		if stats := scheduler.Stats(); int64(hedges) != stats.Hedges || hedges == 0 {
			t.Errorf("%d hedges have the id of a primary; %+v", hedges, stats)
		}
	})
}

// TestReadWriteTransactions share two methods with transactions that only read. Their context turns hedging off.
func TestReadWriteTransactions(t *testing.T) {
	d := startDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		s := startService(t, d)
		fill(t, s.client(t))
		client, scheduler := s.hedged(t, hedge.WithReadOnlyMethods(reading...))
		p99(t, client, 500, 16)
		before := scheduler.Stats()
		for n := range 300 {
			_, err := client.ReadWriteTransaction(hedge.NewContext(t.Context(), hedge.Off()), func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
				if _, err := txn.ReadRow(ctx, table, spanner.Key{n % rows}, []string{"value"}); err != nil {
					return err
				}
				return txn.BufferWrite([]*spanner.Mutation{spanner.Update(table, []string{"id", "value"}, []any{n % rows, value(n)})})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		stats := scheduler.Stats()
		t.Logf("%d calls, %d of them off, %d hedges", stats.Calls-before.Calls, stats.Off-before.Off, stats.Hedges-before.Hedges)
		if stats.Hedges != before.Hedges || stats.Off-before.Off < 300 {
			t.Errorf("before %+v, after %+v", before, stats)
		}
	})
}

// openLoop makes reads at a steady rate, however long they take, and returns their 99th percentile. It begins just after the
// end of a stop, so that the scheduler has learned before the next.
func (s *service) openLoop(t *testing.T, reads int, read func(n int) error) time.Duration {
	t.Helper()
	time.Sleep(6*time.Second + 100*ms - time.Since(s.stops)%(5*time.Second))
	took := make([]time.Duration, reads)
	var all sync.WaitGroup
	for n := range reads {
		all.Go(func() {
			began := time.Now()
			if err := read(n % rows); err != nil {
				t.Error(err)
			}
			took[n] = time.Since(began)
		})
		time.Sleep(5 * ms)
	}
	all.Wait()
	slices.Sort(took)
	return took[len(took)*99/100]
}

func single(ctx context.Context, client *spanner.Client, n int) (string, error) {
	var got string
	row, err := client.Single().ReadRow(ctx, table, spanner.Key{n}, []string{"value"})
	if err == nil {
		err = row.Column(0, &got)
	}
	if err == nil && got != value(n) {
		err = fmt.Errorf("row %d: %q", n, got)
	}
	return got, err
}

// In TestStoppedServer one of the servers behind each connection of the pool stops for 1 s in 5. The policy of package balancer
// avoids it each time, hedge.Do by chance.
func TestStoppedServer(t *testing.T) {
	const reads = 4000
	d := startDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		s := startService(t, d)
		fill(t, s.client(t))
		s.mu.Lock()
		s.stops = time.Now()
		s.mu.Unlock()
		plainClient := s.client(t)
		plain := s.openLoop(t, reads, func(n int) error { _, err := single(t.Context(), plainClient, n); return err })

		around := hedgetest.New(t, hedge.WithReadOnlyMethods(reading...))
		do := s.openLoop(t, reads, func(n int) error {
			_, err := hedge.Do(t.Context(), around, "spanner", reading[0],
				func(ctx context.Context) (string, error) { return single(ctx, plainClient, n) })
			return err
		})

		s.policy = `{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}`
		client, scheduler := s.hedged(t, hedge.WithReadOnlyMethods(reading...))
		policy := s.openLoop(t, reads, func(n int) error { _, err := single(t.Context(), client, n); return err })
		t.Logf("99th percentile: plain %v, hedge.Do %v (%.1f%%), balancer %v (%.1f%%)", plain, do, 100*around.Stats().HedgeRate(),
			policy, 100*scheduler.Stats().HedgeRate())
		if policy > 20*ms || plain < 500*ms { // what hedge.Do reaches depends on which connections the pool gives it
			t.Errorf("%+v", scheduler.Stats())
		}
	})
}
