package spanner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/spannertest"
	"cloud.google.com/go/spanner/spansql"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

const (
	ms       = time.Millisecond
	backends = 4
	rows     = 100
	table    = "t"
	prefix   = "/google.spanner.v1.Spanner/"
)

// raw leaves messages as the bytes that they are on the wire.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

// service is several proxies in front of one database. 2% of the attempts take 200 ms.
type service struct {
	database *grpc.ClientConn
	testserver.Servers

	mu  sync.Mutex
	ids map[string][]string // the numbers of the attempts that carried a request id
}

func start(t *testing.T) *service {
	t.Helper()
	database, err := spannertest.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Close)
	database.SetLogger(func(string, ...any) {})
	ddl, err := spansql.ParseDDL("ddl", "CREATE TABLE "+table+" (id INT64, value STRING(MAX)) PRIMARY KEY (id)")
	if err == nil {
		err = database.UpdateDDL(ddl)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &service{Servers: testserver.Servers{}, ids: map[string][]string{}}
	if s.database, err = grpc.NewClient("passthrough:///"+database.Addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.database.Close() })
	for i := range backends {
		l, address := testserver.NewListener(), fmt.Sprint("backend-", i)
		server := grpc.NewServer(grpc.UnknownServiceHandler(s.proxy), grpc.ForceServerCodec(raw{}),
			grpc.WaitForHandlers(true))
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		s.Servers[address] = l
	}
	return s
}

// proxy is the handler of each proxy. It notes the request ids of an attempt.
func (s *service) proxy(_ any, from grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(from.Context())
	s.mu.Lock()
	for _, id := range md.Get("x-goog-spanner-request-id") {
		s.ids[id] = append(s.ids[id], fmt.Sprint(hedge.PreviousAttempts(from.Context())))
	}
	s.mu.Unlock()
	var request []byte
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	if rand.IntN(50) == 0 {
		if _, err := hedgetest.Taking(200 * ms)(from.Context()); err != nil {
			return err
		}
	}
	method, _ := grpc.MethodFromServerStream(from)
	to, err := s.database.NewStream(from.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = errors.Join(to.SendMsg(&request), to.CloseSend())
	}
	for err == nil {
		var m []byte
		if err = to.RecvMsg(&m); err == nil {
			err = from.SendMsg(&m)
		}
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// client returns one with a pool of connections of its own, as it makes them: Spanner's
// interceptors come inside of ours.
func (s *service) client(t *testing.T, options ...grpc.DialOption) *spanner.Client {
	t.Helper()
	clientOptions := []option.ClientOption{option.WithEndpoint("spanner:///servers")}
	for _, o := range append(options, s.DialOptions("spanner", slices.Collect(maps.Keys(s.Servers))...)...) {
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

func value(n int) string { return fmt.Sprint("value ", n) }

// read reads a row in a read-only transaction, by its key or by a query, and checks it.
func read(ctx context.Context, client *spanner.Client, n int) (err error) {
	txn := client.ReadOnlyTransaction()
	defer txn.Close()
	var got string
	if n%2 == 0 {
		var row *spanner.Row
		if row, err = txn.ReadRow(ctx, table, spanner.Key{n}, []string{"value"}); err == nil {
			err = row.Column(0, &got)
		}
	} else {
		err = txn.Query(ctx, spanner.Statement{
			SQL: "SELECT value FROM " + table + " WHERE id = @id", Params: map[string]any{"id": n},
		}).Do(func(r *spanner.Row) error { return r.Column(0, &got) })
	}
	if err != nil || got != value(n) {
		return fmt.Errorf("row %d: %q, %w", n, got, err)
	}
	return nil
}

// TestTransactions reads in hedged read-only transactions. Each hedge carries its primary's request
// id, so that the service treats both as one request. Read-write and read-only transactions share
// two methods. The context of read-write transactions turns hedging off.
func TestTransactions(t *testing.T) {
	s := start(t)
	scheduler := hedgetest.Fixed(t, 50*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods(
		prefix+"StreamingRead", prefix+"ExecuteStreamingSql", prefix+"BeginTransaction"))
	client := s.client(t, hedgetest.Interceptors(scheduler)...)
	var all []*spanner.Mutation
	for n := range rows {
		all = append(all, spanner.Insert(table, []string{"id", "value"}, []any{n, value(n)}))
	}
	off := hedge.NewContext(t.Context(), hedge.Off())
	if _, err := client.Apply(off, all); err != nil {
		t.Fatal(err)
	}
	hedgetest.P99(t, 400, 4, func(n int) error { return read(t.Context(), client, n%rows) })
	before := scheduler.Stats()
	for n := range 50 {
		if _, err := client.ReadWriteTransaction(off, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			if _, err := txn.ReadRow(ctx, table, spanner.Key{n}, []string{"value"}); err != nil {
				return err
			}
			return txn.BufferWrite([]*spanner.Mutation{spanner.Update(table, []string{"id", "value"}, []any{n, value(n)})})
		}); err != nil {
			t.Fatal(err)
		}
	}
	stats := scheduler.Stats()
	t.Logf("%d calls, %d of them off, %d hedges, %d won", stats.Calls, stats.Off, stats.Hedges, stats.HedgeWins)
	if before.HedgeWins == 0 || stats.Hedges != before.Hedges || stats.Off-before.Off < 50 {
		t.Errorf("before %+v, after %+v", before, stats)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hedges, alone := 0, 0
	for id, numbers := range s.ids {
		if slices.Contains(numbers, "1") {
			if hedges++; len(numbers) == 1 {
				alone++
			}
		}
		if slices.Sort(numbers); len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			t.Errorf("attempts with the id %s: %v", id, numbers)
		}
	}
	// In a busy process an attempt can be canceled before it begins.
	if hedges < int(stats.HedgeWins) || alone > hedges/10 {
		t.Errorf("of %d hedges that began %d have the id of no primary; %+v", hedges, alone, stats)
	}
}
