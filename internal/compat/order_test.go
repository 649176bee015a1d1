package compat_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/timeout"
	"github.com/sony/gobreaker/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// These are what docs/chaining.md says about the order of interceptors.

// slowPrimary lets the hedge win.
func slowPrimary(a testserver.Attempt) testserver.Plan {
	if a.Number == 0 {
		return says(a, testserver.Plan{Delay: time.Hour})
	}
	return says(a, testserver.Plan{Delay: 5 * ms})
}

func TestTimeout(t *testing.T) {
	limit := unaries(timeout.UnaryClientInterceptor(30 * ms))
	for _, tc := range []struct {
		name  string
		chain chain
		hedge time.Duration // latency of the hedge
		code  codes.Code
		took  time.Duration
	}{
		{name: "outside, and the hedge is in time", chain: chain{outside: limit}, hedge: 15 * ms, took: 25 * ms},
		{name: "outside, and the hedge is late", chain: chain{outside: limit}, hedge: 25 * ms,
			code: codes.DeadlineExceeded, took: 30 * ms},
		{name: "inside, and the hedge has its own time", chain: chain{inside: limit}, hedge: 25 * ms, took: 35 * ms},
		{name: "inside, and both run out of it", chain: chain{inside: limit}, hedge: time.Hour,
			code: codes.DeadlineExceeded, took: 40 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			w := start(t, tc.chain, testserver.ByNumber(testserver.Plan{Delay: time.Hour}, testserver.Plan{Delay: tc.hedge}))
			if o := kinds["unary"](w, t.Context(), request()); status.Code(o.err) != tc.code || o.took != tc.took {
				t.Errorf("%v after %v, want %v after %v", o.err, o.took, tc.code, tc.took)
			}
		})
	}
}

// TestRetryPolicy has gRPC retry the attempts by itself. Its retries carry the same metadata key as
// a hedge, so that a retry of a hedge carries it twice, the hedge's number last.
func TestRetryPolicy(t *testing.T) {
	eachKind(t, "", func(t *testing.T, call call) {
		var arrived atomic.Int32
		w := start(t, chain{dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}},
			func(a testserver.Attempt) testserver.Plan {
				switch arrived.Add(1) {
				case 1, 3: // the primary and the hedge, which gRPC retries
					return testserver.Plan{Code: codes.Unavailable}
				case 2: // the retry of the primary
					return testserver.Plan{Delay: time.Hour}
				}
				return testserver.Plan{}
			})
		if o := call(w, t.Context(), request()); o.err != nil {
			t.Error(o.err)
		}
		synctest.Wait()
		var seen []string
		for _, r := range w.Records() {
			seen = append(seen, strings.Join(r.Metadata.Get("grpc-previous-rpc-attempts"), ","))
		}
		if s := w.scheduler.Stats(); s.Hedges != 1 || s.HedgeWins != 1 || !slices.Equal(seen, []string{"", "1", "1", "1,1"}) {
			t.Errorf("%+v; the attempts have the numbers %q, want a hedge that wins by its retry", s, seen)
		}
	})
}

// tickets are credentials that are good for one RPC each.
type tickets struct{ sold atomic.Int64 }

func (k *tickets) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": fmt.Sprint(k.sold.Add(1))}, nil
}
func (k *tickets) RequireTransportSecurity() bool { return true }

// TestCredentials has servers that ask for the client's certificate, a policy that makes two
// connections to each, and tickets: each attempt has one of its own.
func TestCredentials(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	eachKind(t, "", func(t *testing.T, call call) {
		sheet := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"test"},
			NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
		signed, err := x509.CreateCertificate(rand.Reader, &sheet, &sheet, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, _ := x509.ParseCertificate(signed)
		pool := x509.NewCertPool()
		pool.AddCert(leaf)
		mutual := credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{signed}, PrivateKey: key}},
			RootCAs:      pool, ClientCAs: pool, ServerName: "test", ClientAuth: tls.RequireAndVerifyClientCert,
		})
		w := start(t, chain{server: []grpc.ServerOption{grpc.Creds(mutual)}, dial: []grpc.DialOption{
			grpc.WithTransportCredentials(mutual), grpc.WithPerRPCCredentials(&tickets{}), grpc.WithDefaultServiceConfig(
				`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}], ` +
					`"connections": 2}}]}`)}}, slowPrimary)
		o := call(w, t.Context(), request())
		o.check(t, w, 1, codes.OK)
		synctest.Wait()
		var shown []string
		for _, r := range w.Records() {
			shown = append(shown, r.Metadata.Get("authorization")...)
		}
		if slices.Sort(shown); !slices.Equal(shown, []string{"1", "2"}) || w.scheduler.Methods()[0].Connections != 4 {
			t.Errorf("tickets %v, %d connections", shown, w.scheduler.Methods()[0].Connections)
		}
	})
}

// TestAddsUp counts the attempts of 200 calls whose attempts are all late and fail, without hedging
// and at a budget of 10%. Outer retries, hedges and inner retries multiply. gRPC's throttle stops
// its own retries, and the scheduler's hedges.
func TestAddsUp(t *testing.T) {
	const throttle = `"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}`
	inside := []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}
	throttled := []grpc.DialOption{grpc.WithDefaultServiceConfig(`{` + throttle + `, ` + retryPolicy[1:])}
	for _, tc := range []struct {
		name          string
		chain         chain
		options       []hedge.Option
		plain, hedged int64 // attempts
	}{
		{name: "no retries", chain: chain{}, plain: 200, hedged: 220},
		{name: "retry outside", chain: chain{outside: unaries(retryUnary)}, plain: 600, hedged: 660},
		{name: "retryPolicy", chain: chain{dial: inside}, plain: 600, hedged: 660},
		{name: "both", chain: chain{outside: unaries(retryUnary), dial: inside}, plain: 1800, hedged: 1980},
		{name: "retryPolicy, gRPC throttles", chain: chain{dial: throttled}, plain: 203, hedged: 224},
		{name: "retryPolicy, both throttle", chain: chain{dial: throttled},
			options: []hedge.Option{hedge.WithServiceConfig("{" + throttle + "}")}, plain: 203, hedged: 205},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for hedged, want := range map[bool]int64{false: tc.plain, true: tc.hedged} {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, tc.chain, func(testserver.Attempt) testserver.Plan {
						return testserver.Plan{Delay: 20 * ms, Code: codes.Unavailable}
					},
						append(tc.options, hedge.WithBudgetPercent(10), hedge.WithGuard(false), hedge.WithOff(!hedged))...)
					for range 200 {
						_ = kinds["unary"](w, t.Context(), request())
					}
					if got := w.Counts().Attempts; got != want {
						t.Errorf("hedged %t: %d attempts, want %d", hedged, got, want)
					}
				})
			}
		})
	}
}

// TestServiceConfig_BothReadTheSame gives the channel the JSON that the scheduler has: gRPC ignores
// the hedgingPolicy, and applies the timeout to each attempt.
func TestServiceConfig_BothReadTheSame(t *testing.T) {
	const config = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [
		{"name": [{"service": "hedgetest.TestService"}], "timeout": "0.05s",
		"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "1s", "nonFatalStatusCodes": ["DEADLINE_EXCEEDED"]}}]}`
	eachKind(t, "", func(t *testing.T, call call) {
		w := start(t, chain{dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(config)}}, slowPrimary,
			hedge.WithServiceConfig(config))
		o := call(w, t.Context(), request())
		o.check(t, w, 1, codes.OK)
		if o.took != 55*ms {
			t.Errorf("after %v, want 55ms", o.took)
		}
	})
}

func canceled(err error) bool { return status.Code(err) == codes.Canceled }

// failsafe returns a breaker of failsafe-go that opens at 3 failures of 100 if few is set. exempt
// tells it that CANCELED is no failure.
func failsafe(few, exempt bool) grpc.UnaryClientInterceptor {
	b := circuitbreaker.NewBuilder[any]()
	if few {
		b = b.WithFailureThresholdRatio(3, 100).WithDelay(5 * time.Second)
	}
	if exempt {
		b = b.HandleIf(func(_ any, err error) bool { return err != nil && !canceled(err) })
	}
	return failsafegrpc.NewUnaryClientInterceptor(b.Build())
}

// breaker is failsafe of gobreaker.
func breaker(few, exempt bool) grpc.UnaryClientInterceptor {
	var s gobreaker.Settings
	if few {
		s.ReadyToTrip = func(c gobreaker.Counts) bool {
			return c.Requests >= 100 && float64(c.TotalFailures) >= 0.03*float64(c.Requests)
		}
	}
	if exempt {
		s.IsExcluded = canceled
	}
	b := gobreaker.NewCircuitBreaker[any](s)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_, err := b.Execute(func() (any, error) { return nil, invoker(ctx, method, req, reply, cc, opts...) })
		return err
	}
}

// TestBreaker has the figures of docs/chaining.md: circuit breakers inside and outside of hedging.
// One call in twenty is slow, or each, and none fails. A loser ends with CANCELED, which a breaker
// inside counts as a failure of the server unless it is configured otherwise.
func TestBreaker(t *testing.T) {
	const calls = 2000
	for _, tc := range []struct {
		name string
		make func(few, exempt bool) grpc.UnaryClientInterceptor
		few  bool
		slow uint64 // one call in so many
	}{
		{name: "failsafe-go, defaults", make: failsafe, slow: 20},
		{name: "failsafe-go, 3 of 100", make: failsafe, few: true, slow: 20},
		{name: "gobreaker, defaults", make: breaker, slow: 20},
		{name: "gobreaker, 3 of 100", make: breaker, few: true, slow: 20},
		{name: "gobreaker, 3 of 100, one backend stopped", make: breaker, few: true, slow: 1},
	} {
		failed := func(c chain) (failed int) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, c, func(a testserver.Attempt) testserver.Plan {
					if a.Number == 0 && a.ID%tc.slow == tc.slow-1 {
						return testserver.Plan{Delay: 100 * ms}
					}
					return testserver.Plan{Delay: 5 * ms}
				})
				for id := range uint64(calls) {
					if _, err := w.client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						failed++
					}
					time.Sleep(5 * ms)
				}
			})
			return failed
		}
		outside, inside := failed(chain{outside: unaries(tc.make(tc.few, false))}), failed(
			chain{inside: unaries(tc.make(tc.few, false))})
		exempt := failed(chain{inside: unaries(tc.make(tc.few, true))})
		t.Logf("%s: of %d calls %d fail with the breaker outside, %d inside, %d inside with CANCELED as "+
			"no failure", tc.name, calls, outside, inside, exempt)
		if outside != 0 || exempt != 0 {
			t.Errorf("%s: %d calls fail outside and %d inside, with CANCELED as no failure; want none", tc.name, outside, exempt)
		}
		if tc.few && inside == 0 {
			t.Errorf("%s: no call fails inside: the breaker saw no loser", tc.name)
		}
	}
}
