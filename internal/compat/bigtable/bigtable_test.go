package bigtable_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/bttest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

const (
	ms       = time.Millisecond
	backends = 4
	rows     = 1000 // of the table; every tenth is missing
	family   = "f"
	table    = "t"
	readRows = "/google.bigtable.v2.Bigtable/ReadRows"
)

// delayReads has 2% of the reads take 200 to 400 ms, and the others up to 2 ms.
func delayReads(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod == readRows {
		delay := time.Duration(rand.Int64N(int64(2 * ms)))
		if rand.IntN(50) == 0 {
			delay = 200*ms + time.Duration(rand.Int64N(int64(200*ms)))
		}
		if _, err := hedgetest.Taking(delay)(ss.Context()); err != nil {
			return err
		}
	}
	return handler(srv, ss)
}

// service is several servers that hold the same rows, as one target.
type service struct{ testserver.Servers }

func start(t *testing.T) service {
	t.Helper()
	s := service{testserver.Servers{}}
	for i := range backends {
		l, address := testserver.NewListener(), fmt.Sprint("backend-", i)
		server, err := bttest.NewServerWithListener(l, grpc.StreamInterceptor(delayReads))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the server waits for a listener that it does not own
			_ = l.Close()
			server.Close()
		})
		s.Servers[address] = l
		s.fill(t, address)
	}
	return s
}

func (s service) dial(t *testing.T, addresses []string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("bigtable:///servers", append(append(options, s.DialOptions("bigtable", addresses...)...),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s service) client(t *testing.T, conn *grpc.ClientConn) *bigtable.Client {
	t.Helper()
	client, err := bigtable.NewClientWithConfig(t.Context(), "project", "instance",
		bigtable.ClientConfig{MetricsProvider: bigtable.NoopMetricsProvider{}}, option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// fill writes the rows to one server.
func (s service) fill(t *testing.T, address string) {
	t.Helper()
	conn := s.dial(t, []string{address})
	admin, err := bigtable.NewAdminClient(t.Context(), "project", "instance", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	if err := admin.CreateTable(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	if err := admin.CreateColumnFamily(t.Context(), table, family); err != nil {
		t.Fatal(err)
	}
	var keys []string
	var mutations []*bigtable.Mutation
	for n := range rows {
		if n%10 == 0 {
			continue // missing
		}
		m := bigtable.NewMutation()
		m.Set(family, "c", 0, []byte(value(n)))
		keys, mutations = append(keys, key(n)), append(mutations, m)
	}
	if errs, err := s.client(t, conn).Open(table).ApplyBulk(t.Context(), keys, mutations); err != nil || errs != nil {
		t.Fatal(err, errs)
	}
}

func key(n int) string   { return fmt.Sprintf("row-%04d", n) }
func value(n int) string { return strings.Repeat(fmt.Sprint(n, " "), 20) }

// read reads one row and checks it.
func read(ctx context.Context, t *bigtable.Table, n int) error {
	row, err := t.ReadRow(ctx, key(n))
	switch {
	case err != nil:
		return fmt.Errorf("row %d: %w", n, err)
	case n%10 == 0 && row == nil:
		return nil
	case n%10 == 0 || row.Key() != key(n) || len(row[family]) != 1 || string(row[family][0].Value) != value(n):
		return fmt.Errorf("row %d: %v", n, row)
	}
	return nil
}

func p99(t *testing.T, tbl *bigtable.Table) time.Duration {
	return hedgetest.P99(t, 10_000, 16, func(n int) error { return read(t.Context(), tbl, n%rows) })
}

func TestReadRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		all := slices.Collect(maps.Keys(s.Servers))
		plain := p99(t, s.client(t, s.dial(t, all)).Open(table))
		scheduler := hedgetest.New(t, hedge.WithReadOnlyMethods(readRows))
		hedged := p99(t, s.client(t, s.dial(t, all, hedgetest.Interceptors(scheduler)...)).Open(table))
		stats, left := scheduler.Stats(), float64(hedged)/float64(plain)
		t.Logf("99th percentile: plain %v, hedged %v, %.3f of it; %d hedges, %d won, %.1f%% of %d calls", plain, hedged,
			left, stats.Hedges, stats.HedgeWins, 100*stats.HedgeRate(), stats.Calls)
		if left > 0.06 || stats.HedgeWins == 0 || stats.HedgeRate() > 0.15 {
			t.Errorf("p99 is %.3f of the unhedged p99; %+v", left, stats)
		}
	})
}
