package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRecipes_TurnHedgesAway runs the configurations of docs/shed.md, which have room for two hedges.
// Calls whose hedges are turned away go on. No attempt is answered before all hedges were turned
// away or served.
func TestRecipes_TurnHedgesAway(t *testing.T) {
	for _, tc := range []struct {
		name, program, language string
		args                    []string // without the name of the configuration
		http, http2             bool     // of the client
	}{
		{name: "Envoy, gRPC", program: "envoy", language: "yaml", args: envoy},
		{name: "Envoy, HTTP/1.1", program: "envoy", language: "yaml", args: envoy, http: true},
		{name: "Envoy, HTTP/2", program: "envoy", language: "yaml", args: envoy, http: true, http2: true},
		{name: "nginx, HTTP/1.1", program: "nginx", language: "nginx", args: []string{"-e", "stderr", "-c"}, http: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path, err := exec.LookPath(tc.program)
			if err != nil {
				t.Skip(tc.program, " is not on the path: .ci/run installs it")
			}
			const calls, most = 12, 12 * (race.MaxAttempts - 1) // hedges: one that was turned away is repeated
			var away, served atomic.Int64
			backends := startRecipeBackends(t, func(hedge bool) {
				if hedge {
					served.Add(1)
				}
				for n := 0; away.Load()+served.Load() < most && n < 10_000; n++ {
					<-time.After(time.Millisecond)
				}
			})
			address, _ := startRecipe(t, recipe(t, tc.language, backends), path, tc.args...)
			s := hedgetest.Fixed(t, 20*time.Millisecond)
			call := dialGRPC(t, s, address, &away)
			if tc.http {
				call = dialHTTP(t, s, address, tc.http2, &away)
			}
			var all sync.WaitGroup
			for range calls {
				all.Go(func() {
					if err := call(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			got := s.Stats()
			t.Logf("%d hedges, %d turned away, %d served", got.Hedges, away.Load(), served.Load())
			// The last one to be turned away may be reported as its call ends.
			if got.TurnedAway < calls-2 || got.Hedges != away.Load()+served.Load() || served.Load() < 1 || served.Load() > 4 {
				t.Errorf("%d hedges, %d turned away, %d of them in time, %d served; want two served at a time, the others "+
					"turned away", got.Hedges, away.Load(), got.TurnedAway, served.Load())
			}
		})
	}
}

var envoy = []string{"--disable-hot-restart", "--log-level", "error", "--config-path"}

// startRecipeBackends starts two servers of gRPC and HTTP, which call wait for each attempt.
func startRecipeBackends(t *testing.T, wait func(hedge bool)) (ports []string) {
	calls := grpc.NewServer()
	testpb.RegisterTestServiceServer(calls, answers{})
	for range 2 {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wait(r.Header.Get("Hedge-Primary-In-Flight") != "")
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
			}
		}))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

type answers struct {
	testpb.UnimplementedTestServiceServer
}

func (answers) Unary(context.Context, *testpb.Request) (*testpb.Reply, error) {
	return &testpb.Reply{}, nil
}

// recipe returns the configuration of docs/shed.md in a language, in front of the backends.
func recipe(t *testing.T, language string, backends []string) string {
	page, err := os.ReadFile("../../../docs/shed.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(page), "```"+language+"\n")
	config, _, _ = strings.Cut(config, "```")
	config = strings.NewReplacer("9001", backends[0], "9002", backends[1]).Replace(config)
	if language == "nginx" {
		folder := t.TempDir()
		config = fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; events {}\nhttp { access_log off; "+
			"client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; "+
			"uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;\n%[2]s}", folder, config)
	}
	return config
}

// startRecipe runs a proxy at a port in place of 8080, and returns its address and what kills it.
func startRecipe(t *testing.T, config, path string, args ...string) (address string, kill func()) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	address, file := "127.0.0.1:"+port, filepath.Join(t.TempDir(), "recipe.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(config, "8080", port, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var printed strings.Builder
	process, ended := exec.CommandContext(ctx, path, append(args, file)...), make(chan error, 1)
	process.Stdout, process.Stderr = &printed, &printed
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- process.Wait(); close(ended) }()
	kill = func() { cancel(); <-ended }
	t.Cleanup(kill)
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address, kill
		}
		select {
		case err := <-ended:
			t.Fatalf("%s: %v: %s", path, err, &printed)
		case <-time.After(time.Millisecond):
		}
	}
}

// dialGRPC returns a call that is hedged, and counts the hedges that are turned away.
func dialGRPC(t *testing.T, s *hedge.Scheduler, address string, away *atomic.Int64) func(context.Context) error {
	count := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if status.Code(err) == codes.Unavailable {
			away.Add(1)
		}
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(interceptor.DialOptions(s,
		grpc.WithTransportCredentials(insecure.NewCredentials())), grpc.WithChainUnaryInterceptor(count))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := testpb.NewTestServiceClient(conn)
	return func(ctx context.Context) error {
		_, err := client.Unary(ctx, &testpb.Request{})
		return err
	}
}

// roundTrips is a transport, for a client or for its attempts.
type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dialHTTP is dialGRPC for a GET request.
func dialHTTP(
	t *testing.T, s *hedge.Scheduler, address string, http2 bool, away *atomic.Int64,
) func(context.Context) error {
	base := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: 100}
	base.Protocols.SetHTTP1(!http2)
	base.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(base.CloseIdleConnections)
	client := &http.Client{Transport: hedgehttp.Transport(s, roundTrips(func(r *http.Request) (*http.Response, error) {
		res, err := base.RoundTrip(r)
		if err == nil && res.Header.Get("Hedge-Turned-Away") != "" {
			away.Add(1)
		}
		return res, err
	}))}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", res.Status)
		}
		return nil
	}
}

// TestRegions has a real Envoy in front of each of two regions. The backends of one stall, then its Envoy
// is killed. Calls over plain gRPC wait, then fail. Hedged calls are answered by the other region.
func TestRegions(t *testing.T) {
	path, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("envoy is not on the path: .ci/run installs it")
	}
	var stalls atomic.Bool
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	region := func(served *atomic.Int64, stall func()) (grpc.DialOption, string, func()) {
		backends := startRecipeBackends(t, func(bool) { served.Add(1); stall() })
		address, kill := startRecipe(t, recipe(t, "yaml", backends), path, envoy...)
		return grpc.WithTransportCredentials(insecure.NewCredentials()), "passthrough:///" + address, kill
	}
	dial := func(address string, options ...grpc.DialOption) *grpc.ClientConn {
		conn, err := grpc.NewClient(address, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var servedByEU, servedByUS atomic.Int64
	creds, eu, killEU := region(&servedByEU, func() {
		if stalls.Load() {
			<-released
		}
	})
	_, us, _ := region(&servedByUS, func() {})
	s := hedgetest.Fixed(t, 20*time.Millisecond, hedge.WithFailover())
	hedged := testpb.NewTestServiceClient(dial(eu,
		interceptor.DialOptions(s, creds, interceptor.HedgeTo(dial(us, creds)))...))
	plain := testpb.NewTestServiceClient(dial(eu, creds))

	const calls = 20
	for _, phase := range []struct {
		name  string
		begin func()
		plain codes.Code
	}{
		{name: "both regions answer", begin: func() {}, plain: codes.OK},
		{name: "eu stalls", begin: func() { stalls.Store(true) }, plain: codes.Canceled},
		{name: "eu is down", begin: killEU, plain: codes.Unavailable},
	} {
		phase.begin()
		ctx, cancel := context.WithCancel(t.Context())
		control := make(chan error, 1)
		go func() {
			_, err := plain.Unary(ctx, &testpb.Request{})
			control <- err
		}()
		if phase.plain != codes.Canceled {
			err = <-control
		}
		before, answered := servedByUS.Load(), 0
		for range calls {
			if _, err := hedged.Unary(t.Context(), &testpb.Request{}); err != nil {
				t.Errorf("%s: a hedged call: %v, want an answer of us", phase.name, err)
				continue
			}
			answered++
		}
		cancel()
		if phase.plain == codes.Canceled {
			err = <-control
		}
		if status.Code(err) != phase.plain {
			t.Errorf("%s: a plain call: %v, want %v", phase.name, err, phase.plain)
		}
		got := servedByUS.Load() - before
		t.Logf("%s: plain %v; hedged %d of %d answered; us served %d attempts", phase.name, status.Code(err),
			answered, calls, got)
		if phase.plain != codes.OK && got < calls {
			t.Errorf("%s: us served %d attempts, want one for each of %d calls", phase.name, got, calls)
		}
	}
	if got := s.Stats(); got.Failovers < calls/2 {
		t.Errorf("%d failovers, want most of the %d calls after eu is down: %+v", got.Failovers, calls, got)
	}
}
