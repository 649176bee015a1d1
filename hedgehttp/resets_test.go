package hedgehttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestRule07_HTTPServersThatCountResets sends HTTP requests over one HTTP/2 connection to servers that
// cut it for resets. Plain net/http has no failure. A server that gives the reason cuts once, and few
// requests fail. A server that gives none cuts rarely after the first minute.
func TestRule07_HTTPServersThatCountResets(t *testing.T) {
	longtest.Simulation(t)
	const each = 10 * ms
	for _, tc := range []struct {
		name    string
		limit   testserver.Limit
		minutes int
		cuts    int64 // at most
		failed  int   // of the requests after the first minute, at most
	}{
		{name: "a reason", limit: testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, minutes: 2,
			cuts: 1},
		{name: "no reason", limit: testserver.LimitLikeApache,
			minutes: 3, cuts: 12, failed: 4},
	} {
		for _, hedged := range []bool{false, true} {
			hedgetest.Run(t, fmt.Sprintf("%s, hedged %t", tc.name, hedged), func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, DrawByID: true, CountsOnly: true,
					Latency: testserver.LogNormal(110*ms, 50*ms), Limit: &tc.limit})
				base := h2c(cluster)
				defer base.CloseIdleConnections()
				rt := http.RoundTripper(base)
				if hedged {
					rt = hedgehttp.Transport(hedgetest.All(t, hedge.WithBudgetPercent(50), hedge.WithTrigger(hedge.Fixed(100*ms)),
						hedge.WithReadOnlyMethods("/hedgetest.TestService/*")), base)
				}
				minute := int(time.Minute / each)
				failed := make([]bool, tc.minutes*minute)
				var requests sync.WaitGroup
				for id := range failed {
					requests.Go(func() { failed[id] = grpcRequest(t.Context(), rt, uint64(id)+1) != nil })
					time.Sleep(each)
				}
				requests.Wait()
				first, later := count(failed[:minute]), count(failed[minute:])
				cuts := cluster.ConnCounts().Cuts
				t.Logf("%d cuts, %d requests fail in the first minute, %d of %d later", cuts, first, later, len(failed)-minute)
				if hedged && (cuts == 0 || cuts > tc.cuts || later > tc.failed) || !hedged && first+later+int(cuts) > 0 {
					t.Errorf("want at most %d cuts, and at most %d failed requests after the first minute; none without hedging",
						tc.cuts, tc.failed)
				}
				synctest.Wait()
			})
		}
	}
}

// h2c returns a transport that sends HTTP/2 in plain text to the first backend of a cluster.
func h2c(cluster *testserver.Cluster) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return cluster.Dial(ctx, cluster.Address(0))
	}}
}

// grpcRequest makes a unary call of gRPC as an HTTP request.
func grpcRequest(ctx context.Context, rt http.RoundTripper, id uint64) error {
	message, err := proto.Marshal(&testpb.Request{Id: id})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://host/hedgetest.TestService/Unary",
		bytes.NewReader(frame(0, message)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(res.Body)
	if got := res.Trailer.Get("Grpc-Status"); err != nil || len(reply) < 5 || got != "0" {
		return fmt.Errorf("status %q, %d bytes, %w", got, len(reply), err)
	}
	return nil
}

func count(all []bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// TestGuard_StatusInsideA200: hedges that fail with RESOURCE_EXHAUSTED inside a 200 are held back.
func TestGuard_StatusInsideA200(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want stats.GuardReason
	}{
		"resource_exhausted": {`{"error":{"code":"resource_exhausted"}}`, stats.GuardExhausted},
		"unavailable":        {`{"error":{"code":"unavailable"}}`, stats.GuardNone},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedge.WithMaxHedges(1))
			good := serves(string(frame(0, []byte("message"))), "Content-Type", "application/connect+json")
			bad := serves(string(frame(2, []byte(tc.body))), "Content-Type", "application/connect+json")
			var attempts []http.HandlerFunc
			for range 40 {
				attempts = append(attempts, after(20*ms, good), after(ms, bad))
			}
			rt := hedgehttp.Transport(s, inMemory(t, true, attempts...))
			reason := stats.GuardNone
			for range 20 {
				attemptOf(rt, "POST", connectHeader)
				time.Sleep(time.Second)
				if g := s.Methods()[0].Guard.Reason; g != stats.GuardNone {
					reason = g
					break
				}
			}
			if reason != tc.want {
				t.Errorf("the guard's reason is %q after %d hedges, want %q", reason, s.Stats().Hedges, tc.want)
			}
		})
	}
}
