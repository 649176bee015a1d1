// Package http_test hedges HTTP clients and servers that others wrote.
package http_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

func TestMain(m *testing.M) {
	// Improbable's proxy imports it, and it starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/desertbit/timer.timerRoutine"))
}

// answer is what servers give for a number: a few kilobytes that no other number has.
func answer(n string) []byte {
	sum := sha256.Sum256([]byte(n))
	return bytes.Repeat([]byte(hex.EncodeToString(sum[:])), 50)
}

// application serves all protocols of these tests.
func application(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	type in = connect.Request[wrapperspb.StringValue]
	unary := func(_ context.Context, req *in) (*connect.Response[wrapperspb.BytesValue], error) {
		return connect.NewResponse(wrapperspb.Bytes(answer(req.Msg.Value))), nil
	}
	mux.Handle("/test.Blobs/Get",
		connect.NewUnaryHandler("/test.Blobs/Get", unary, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle("/test.Blobs/Watch", connect.NewServerStreamHandler("/test.Blobs/Watch",
		func(_ context.Context, req *in, st *connect.ServerStream[wrapperspb.BytesValue]) error {
			all := answer(req.Msg.Value)
			for ; len(all) > 0; all = all[400:] {
				if err := st.Send(wrapperspb.Bytes(all[:400])); err != nil {
					return err
				}
			}
			return nil
		}))
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		_, n, _ := strings.Cut(string(all), "prompt ")
		n, _, _ = strings.Cut(n, `"`)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for all := answer(n); len(all) > 0; all = all[400:] {
			fmt.Fprintf(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`+
				"\n\n", all[:400])
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		key := strconv.Itoa(n)
		if _, err := backend.PutObject("bucket", key, map[string]string{}, bytes.NewReader(answer(key)),
			int64(len(answer(key))), nil); err != nil {
			t.Fatal(err)
		}
	}
	mux.Handle("/bucket/", gofakes3.New(backend).Server())
	mux.HandleFunc("GET /plain/{n}", func(w http.ResponseWriter, r *http.Request) { w.Write(answer(r.PathValue("n"))) })
	return mux
}

// clients make call n through an HTTP client, and return its reply.
var clients = []struct {
	name   string
	option hedge.Option
	call   func(c *http.Client, url string) func(ctx context.Context, n string) ([]byte, error)
}{
	{"connect-go", hedge.WithReadOnlyMethods("/test.Blobs/*"), unary()},
	{"connect-go, GET", hedge.WithAllMethods(),
		unary(connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))},
	{"connect-go, gRPC-Web", hedge.WithReadOnlyMethods("/test.Blobs/*"), unary(connect.WithGRPCWeb())},
	{"connect-go, server streams", hedge.WithReadOnlyMethods("/test.Blobs/*"),
		func(c *http.Client, url string) func(context.Context, string) ([]byte, error) {
			client := connect.NewClient[wrapperspb.StringValue, wrapperspb.BytesValue](c, url+"/test.Blobs/Watch")
			return func(ctx context.Context, n string) (all []byte, err error) {
				st, err := client.CallServerStream(ctx, connect.NewRequest(wrapperspb.String(n)))
				if err != nil {
					return nil, err
				}
				defer st.Close()
				for st.Receive() {
					all = append(all, st.Msg().Value...)
				}
				return all, st.Err()
			}
		}},
	{"openai-go", hedge.WithReadOnlyMethods("/v1/Complete"),
		func(c *http.Client, url string) func(context.Context, string) ([]byte, error) {
			client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("key"),
				option.WithHTTPClient(c), option.WithMaxRetries(0))
			return func(ctx context.Context, n string) (all []byte, err error) {
				st := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
					Model: "model", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("prompt " + n)},
				})
				defer st.Close()
				for st.Next() {
					all = append(all, st.Current().Choices[0].Delta.Content...)
				}
				return all, st.Err()
			}
		}},
	{"aws-sdk-go-v2, S3", hedge.WithAllMethods(),
		func(c *http.Client, url string) func(context.Context, string) ([]byte, error) {
			client := s3.New(s3.Options{
				HTTPClient: c, BaseEndpoint: &url, UsePathStyle: true, Region: "eu-west-1", Retryer: aws.NopRetryer{},
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
					return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
				}),
			})
			return func(ctx context.Context, n string) ([]byte, error) {
				out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: &n})
				if err != nil {
					return nil, err
				}
				defer out.Body.Close()
				return io.ReadAll(out.Body)
			}
		}},
	{"net/http", hedge.WithAllMethods(), func(c *http.Client, url string) func(context.Context, string) ([]byte, error) {
		return func(ctx context.Context, n string) ([]byte, error) {
			req, err := http.NewRequestWithContext(ctx, "GET", url+"/plain/"+n, nil)
			if err != nil {
				return nil, err
			}
			res, err := c.Do(req)
			if err != nil {
				return nil, err
			}
			defer res.Body.Close()
			return io.ReadAll(res.Body)
		}
	}},
}

func unary(opts ...connect.ClientOption) func(c *http.Client, url string) func(context.Context,
	string) ([]byte, error) {
	return func(c *http.Client, url string) func(context.Context, string) ([]byte, error) {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.BytesValue](c, url+"/test.Blobs/Get", opts...)
		return func(ctx context.Context, n string) ([]byte, error) {
			res, err := client.CallUnary(ctx, connect.NewRequest(wrapperspb.String(n)))
			if err != nil {
				return nil, err
			}
			return res.Msg.Value, nil
		}
	}
}

// stops is how long a server is stopped, in five times as long.
var stops = time.Duration(longtest.Size(250, 1000)) * time.Millisecond

// backends are three servers of the application, the first of which is stopped for a fifth of the time.
type backends struct {
	urls  []*url.URL
	conns atomic.Int64 // that are open
}

func startBackends(t *testing.T) *backends {
	b := &backends{}
	app, began := application(t), time.Now()
	for i := range 3 {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if in := time.Since(began) % (5 * stops); i == 0 && in >= stops && in < 2*stops {
				stopped := time.NewTimer(2*stops - in)
				defer stopped.Stop()
				select {
				case <-stopped.C:
				case <-r.Context().Done():
				}
			}
			app.ServeHTTP(w, r)
		}))
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				b.conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				b.conns.Add(-1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		at, _ := url.Parse(server.URL)
		b.urls = append(b.urls, at)
	}
	return b
}

// reverseProxy is httputil's, in front of the backends in turn. Its own requests are sent by rt.
func (b *backends) reverseProxy(t *testing.T, rt http.RoundTripper) string {
	var turn atomic.Int64
	proxy := &httputil.ReverseProxy{Transport: rt, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(b.urls[int(turn.Add(1))%len(b.urls)])
	}, ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { w.WriteHeader(http.StatusBadGateway) }}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// nginx is in front of the backends in turn, at a socket of its own: a port could be taken before
// it listens. The test is skipped where none is installed.
func (b *backends) nginx(t *testing.T) dialer {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("no nginx: apt-get install nginx-light")
	}
	folder, err := os.MkdirTemp("", "nginx") // its name is short
	if err != nil {
		t.Fatal(err)
	}
	var servers strings.Builder
	for _, at := range b.urls {
		fmt.Fprintf(&servers, "server %s max_fails=0;", at.Host)
	}
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error.log; events {}
http { access_log off; client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3;
uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5; upstream backends { %[2]s keepalive 32; }
server { listen unix:%[1]s/socket; location / { proxy_pass http://backends; proxy_http_version 1.1;
proxy_buffering off; proxy_set_header Connection ""; proxy_set_header Host $http_host; } } }`, folder, servers.String())
	path := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-c", path, "-p", folder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		os.RemoveAll(folder)
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, "socket"))
	}
	for tries := 0; ; tries++ { // each takes a millisecond at least, while nothing listens
		conn, err := dial(ctx, "", "")
		if err == nil {
			conn.Close()
			return dial
		}
		if tries > 10_000 {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond)
	}
}

// dialer is an [http.Transport.DialContext].
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// measure makes calls until the time is over, 20 by each caller at least. It returns how many failed and
// the p99 of their latencies.
func measure(t *testing.T, call func(context.Context, string) ([]byte, error)) (calls,
	failed int64, p99 time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(longtest.Size(8, 25))*stops)
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := caller; ctx.Err() == nil || i < 20+caller; i++ { // a busy machine makes few calls in the time
				n := strconv.Itoa(i % 10)
				began := time.Now()
				got, err := call(t.Context(), n)
				d := time.Since(began)
				mu.Lock()
				took = append(took, d)
				if err != nil {
					failed++
					t.Log(err)
				} else if !bytes.Equal(got, answer(n)) {
					t.Errorf("call %s: %d wrong bytes", n, len(got))
				}
				mu.Unlock()
				<-time.After(5 * time.Millisecond)
			}
		})
	}
	callers.Wait()
	return int64(len(took)), failed, quantile(took, 0.99)
}

// TestClients: behind a proxy in front of three servers, one of which is stopped for a fifth of the time, a
// client that hedges gets no wrong byte and has no more failures than without, and leaves no
// connection.
func TestClients(t *testing.T) {
	for _, front := range []string{"httputil.ReverseProxy", "nginx"} {
		for _, tc := range clients {
			t.Run(front+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				b := startBackends(t)
				proxied := &http.Transport{MaxIdleConnsPerHost: 100}
				t.Cleanup(proxied.CloseIdleConnections)
				at, dial := "http://nginx", dialer(nil)
				if front == "nginx" {
					dial = b.nginx(t)
				} else {
					at = b.reverseProxy(t, proxied)
				}
				compare(t, tc.option, dial, func(rt http.RoundTripper) func(context.Context, string) ([]byte, error) {
					return tc.call(&http.Client{Transport: rt}, at)
				})
			})
		}
	}
}

// TestReverseProxy hedges the requests of a proxy.
func TestReverseProxy(t *testing.T) {
	b := startBackends(t)
	own := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(own.CloseIdleConnections)
	compare(t, hedge.WithAllMethods(), nil, func(rt http.RoundTripper) func(context.Context, string) ([]byte, error) {
		return clients[len(clients)-1].call(&http.Client{Transport: own}, b.reverseProxy(t, rt))
	})
	deadline := time.Now().Add(10 * time.Second)
	for b.conns.Load() > 0 && time.Now().Before(deadline) {
		<-time.After(time.Millisecond)
	}
	if n := b.conns.Load(); n > 0 {
		t.Errorf("%d connections are left", n)
	}
}

// compare makes calls without and with hedging, at the same time.
func compare(t *testing.T, option hedge.Option, dial dialer,
	calls func(http.RoundTripper) func(context.Context, string) ([]byte, error)) {
	name := hedgehttp.WithName(func(r *http.Request) string {
		if strings.HasPrefix(r.URL.Path, "/v1/chat") {
			return "/v1/Complete"
		}
		return ""
	})
	type result struct {
		calls, failed int64
		p99           time.Duration
	}
	s := hedgetest.New(t, option, hedge.WithTrigger(hedge.Fixed(20*time.Millisecond)), hedge.WithBudgetPercent(20))
	var both sync.WaitGroup
	results := make([]result, 2)
	for i, scheduler := range []*hedge.Scheduler{nil, s} {
		both.Go(func() {
			base := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: dial}
			client := &http.Client{Transport: hedgehttp.Transport(scheduler, base, name)}
			r := &results[i]
			r.calls, r.failed, r.p99 = measure(t, calls(client.Transport))
			client.CloseIdleConnections()
		})
	}
	both.Wait()
	plain, hedged, c := results[0], results[1], s.Stats()
	t.Logf("%d calls: p99 %v, without hedging %v; %d hedges, %d won, %d failures, %d without", hedged.calls,
		hedged.p99, plain.p99, c.Hedges, c.HedgeWins, hedged.failed, plain.failed)
	if hedged.failed > plain.failed || c.Hedges == 0 {
		t.Errorf("%d failures, %d without hedging, %+v", hedged.failed, plain.failed, c)
	}
}

func quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}
