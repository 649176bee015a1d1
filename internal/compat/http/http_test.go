// Package http_test hedges HTTP clients and servers that others wrote.
package http_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
			for ; len(all) > 0; all = all[800:] {
				if err := st.Send(wrapperspb.Bytes(all[:800])); err != nil {
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
		for all := answer(n); len(all) > 0; all = all[800:] {
			fmt.Fprintf(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`+
				"\n\n", all[:800])
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

// call makes call n, and returns its reply.
type call = func(ctx context.Context, n string) ([]byte, error)

// clients make calls through an HTTP client.
var clients = []struct {
	name   string
	option hedge.Option
	call   func(c *http.Client, url string) call
}{
	{"connect-go", hedge.WithReadOnlyMethods("/test.Blobs/*"), unary()},
	{"connect-go, GET", hedge.WithAllMethods(),
		unary(connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects))},
	{"connect-go, gRPC-Web", hedge.WithReadOnlyMethods("/test.Blobs/*"), unary(connect.WithGRPCWeb())},
	{"connect-go, server streams", hedge.WithReadOnlyMethods("/test.Blobs/*"),
		func(c *http.Client, url string) call {
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
		func(c *http.Client, url string) call {
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
		func(c *http.Client, url string) call {
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
	{"net/http", hedge.WithAllMethods(), func(c *http.Client, url string) call {
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

func unary(opts ...connect.ClientOption) func(c *http.Client, url string) call {
	return func(c *http.Client, url string) call {
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

// TestClients makes calls by each client, plain and hedged, through a proxy to three servers that
// hold some requests back. No call gets a wrong byte, hedges win, hedging adds no failures, and no
// connection is left. In the last case the proxy itself hedges.
func TestClients(t *testing.T) {
	for _, tc := range clients {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			compare(t, tc.option, func(plain, rt http.RoundTripper) call {
				return tc.call(&http.Client{Transport: rt}, startProxy(t, plain))
			})
		})
	}
	t.Run("httputil.ReverseProxy", func(t *testing.T) {
		t.Parallel()
		compare(t, hedge.WithAllMethods(), func(plain, rt http.RoundTripper) call {
			return clients[len(clients)-1].call(&http.Client{Transport: plain}, startProxy(t, rt))
		})
	})
}

// startProxy starts a reverse proxy in front of three servers of the application, in turn. It sends
// its own requests by rt. The first server holds one request in ten back.
func startProxy(t *testing.T, rt http.RoundTripper) string {
	app := application(t)
	var urls []*url.URL
	for i := range 3 {
		var requests atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == 0 && requests.Add(1)%10 == 0 {
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
			}
			app.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		at, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, at)
	}
	var turn atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: rt, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(urls[int(turn.Add(1))%len(urls)]) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { w.WriteHeader(http.StatusBadGateway) }})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// compare makes calls without and with hedging. calls gets a transport without hedging and one to
// test.
func compare(t *testing.T, option hedge.Option, calls func(plain, rt http.RoundTripper) call) {
	name := hedgehttp.WithName(func(r *http.Request) string {
		if strings.HasPrefix(r.URL.Path, "/v1/chat") {
			return "/v1/Complete"
		}
		return ""
	})
	hedged := hedgetest.New(t, option, hedge.WithBudgetPercent(20))
	var failed [2]atomic.Int64 // the proxy cuts a response off now and then, with hedging or without
	for i, s := range []*hedge.Scheduler{nil, hedged} {
		plain, base := &http.Transport{MaxIdleConnsPerHost: 100}, &http.Transport{MaxIdleConnsPerHost: 100}
		call := calls(plain, hedgehttp.Transport(s, base, name))
		p99 := hedgetest.P99(t, longtest.Size(200, 3000), 4, func(id int) error {
			n := strconv.Itoa(id % 10)
			got, err := call(t.Context(), n)
			if err != nil {
				failed[i].Add(1)
				t.Log(err)
			} else if !bytes.Equal(got, answer(n)) {
				return fmt.Errorf("%d wrong bytes", len(got))
			}
			return nil
		})
		t.Logf("hedged %t: p99 %v", s != nil, p99)
		plain.CloseIdleConnections()
		base.CloseIdleConnections()
	}
	if c := hedged.Stats(); c.HedgeWins == 0 || failed[1].Load() > failed[0].Load()+2 {
		t.Errorf("%d failures, without hedging %d; %+v", failed[1].Load(), failed[0].Load(), c)
	}
}
