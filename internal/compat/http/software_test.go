package http_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// caller makes call n and checks its answer.
type caller = func(ctx context.Context, n int) error

// software is clients and servers that others wrote.
var software = []struct {
	name  string
	http2 bool
	rpc   bool // the server refuses hedges by its protocol's statuses, inside a 200
	once  bool // the server has effects, so it answers no hedge
	serve func(t *testing.T) http.Handler
	dial  func(t *testing.T, c *http.Client, url string) caller
}{
	{name: "MCP's SDK, with notifications", once: true, serve: serveMCP, dial: dialMCP},
	{name: "connect-go, Connect", rpc: true, serve: serveConnect, dial: dialConnect()},
	{name: "connect-go, Connect by GET", rpc: true, serve: serveConnect, dial: dialConnect(connect.WithHTTPGet(),
		connect.WithIdempotency(connect.IdempotencyNoSideEffects))},
	{name: "connect-go, gRPC", rpc: true, http2: true, serve: serveConnect, dial: dialConnect(connect.WithGRPC())},
	{name: "connect-go, gRPC-Web", rpc: true, serve: serveConnect, dial: dialConnect(connect.WithGRPCWeb())},
	{name: "connect-go, streams", rpc: true, serve: serveConnect, dial: dialConnectStream()},
	{name: "connect-go, gRPC-Web streams", rpc: true, serve: serveConnect, dial: dialConnectStream(connect.WithGRPCWeb())},
	{name: "elastic-transport-go", serve: serveAnswers, dial: dialElastic},
	{name: "openai-go", serve: serveOpenAI, dial: dialOpenAI},
	{name: "client-go of Kubernetes, with a watch", once: true, serve: serveKubernetes, dial: dialKubernetes},
	{name: "a server that locks idempotency keys", serve: serveLocks, dial: dialLocks},
}

// TestSoftware makes calls without and with hedging in one run. The server answers one request in
// three only after its hedge was refused: by statuses in turn, or as its protocol does. Some hedges
// are answered instead, and win. 2% of first attempts fail. Hedging fails no call that plain HTTP
// completes.
func TestSoftware(t *testing.T) {
	calls := longtest.Size(60, 600)
	for _, tc := range software {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var failed [2][]int
			s := hedgetest.Fixed(t, 2*time.Millisecond, hedge.WithMinDelay(0), hedge.WithMaxHedges(1), hedge.WithGuard(false),
				hedge.WithReadOnlyMethods("/any/*", "/test.Blobs/*"))
			for i, scheduler := range []*hedge.Scheduler{nil, s} {
				site := &site{app: tc.serve(t), rpc: tc.rpc, once: tc.once, hedged: i == 1, refused: make(chan struct{})}
				client, url := site.start(t, scheduler, tc.http2)
				call := tc.dial(t, client, url)
				site.failing.Store(true)
				for n := range calls {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					if err := call(ctx, n); errors.As(err, new(wrongAnswer)) {
						t.Error(err)
					} else if err != nil {
						failed[i] = append(failed[i], n)
						if len(failed[i]) > calls/5 {
							t.Fatalf("hedged %v: %v", i == 1, err)
						}
					}
					cancel()
				}
				site.failing.Store(false)
			}
			c := s.Stats()
			t.Logf("| %s | %d | %d, %d won | %d | %d |", tc.name, calls, c.Hedges, c.HedgeWins, len(failed[0]), len(failed[1]))
			if len(failed[1]) > len(failed[0]) || c.Hedges == 0 {
				t.Errorf("%d hedges; calls %v failed, plain %v; want hedges, and no more failures than plain", c.Hedges,
					failed[1], failed[0])
			}
		})
	}
}

// wrongAnswer is an answer of another call.
type wrongAnswer string

func (w wrongAnswer) Error() string { return string(w) }

func check(got []byte, n int) error {
	if want := answer(strconv.Itoa(n)); !bytes.Equal(got, want) {
		return wrongAnswer(fmt.Sprintf("call %d: %d wrong bytes: %.40q", n, len(got), got))
	}
	return nil
}

// site serves an application, and refuses most hedges.
type site struct {
	app      http.Handler
	rpc      bool
	once     bool
	hedged   bool
	failing  atomic.Bool
	requests atomic.Int64
	hedges   atomic.Int64
	refused  chan struct{} // a hedge has been refused
}

// isHedge is the header that the transport of hedges adds.
const isHedge = "Is-Hedge"

var refusals = []int{429, 500, 503, 524, 529, 409, 403, 408, 425, 499, 501, 599}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(isHedge) != "" {
		switch n := s.hedges.Add(1); {
		case n%4 == 0 && !s.once:
			r.Header.Del(isHedge) // which the application would refuse
			s.app.ServeHTTP(w, r)
			return // its primary waits
		case s.rpc:
			s.app.ServeHTTP(w, r)
		default:
			w.WriteHeader(refusals[int(n)%len(refusals)])
		}
		select {
		case s.refused <- struct{}{}:
		default:
		}
		return
	}
	n := s.requests.Add(1)
	if s.failing.Load() && n%50 == 0 && r.Header.Get("Accept") != "text/event-stream" {
		w.WriteHeader(refusals[int(n/50)%5])
		return
	}
	if s.hedged && n%3 == 0 { // slow, if it is hedged
		slow := time.NewTimer(50 * time.Millisecond)
		defer slow.Stop()
		select {
		case <-s.refused:
		case <-slow.C:
		}
	}
	s.app.ServeHTTP(w, r)
}

// start starts the site, and returns a client that hedges, if there is a scheduler.
func (s *site) start(t *testing.T, scheduler *hedge.Scheduler, http2 bool) (*http.Client, string) {
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server.Config.Protocols = protocols
	server.Start()
	base := &http.Transport{MaxIdleConnsPerHost: 100, Protocols: protocols}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	rt := hedgehttp.Transport(scheduler, base, hedgehttp.WithHedgeTransport(marking{base}), hedgehttp.WithIdempotencyKey(),
		hedgehttp.WithName(func(*http.Request) string { return "/any/Request" }))
	return &http.Client{Transport: rt}, server.URL
}

type marking struct{ *http.Transport }

func (m marking) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(isHedge, "1")
	return m.Transport.RoundTrip(r)
}

func serveMCP(t *testing.T) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "answers"}, nil)
	type in struct {
		N int `json:"n"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "answer"}, func(ctx context.Context, _ *mcp.CallToolRequest, in in) (
		*mcp.CallToolResult, any, error) {
		text := string(answer(strconv.Itoa(in.N)))
		if in.N%12 == 0 { // outside the request, so that it goes by the stream of a GET
			for session := range server.Sessions() {
				session.NotifyProgress(context.Background(), &mcp.ProgressNotificationParams{ProgressToken: 1, Message: text})
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

func dialMCP(t *testing.T, c *http.Client, url string) caller {
	notes := make(chan string, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			notes <- r.Params.Message
		},
	})
	transport := &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: c, MaxRetries: -1}
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return func(ctx context.Context, n int) error {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "answer", Arguments: map[string]any{"n": n}})
		if err != nil {
			return err
		}
		if n%12 == 0 {
			select {
			case note := <-notes:
				if err := check([]byte(note), n); err != nil {
					return err
				}
			case <-ctx.Done():
				return errors.New("no notification")
			}
		}
		text, ok := res.Content[0].(*mcp.TextContent)
		if !ok {
			return fmt.Errorf("%T", res.Content[0])
		}
		return check([]byte(text.Text), n)
	}
}

// refusesHedges returns an error of connect-go for a hedge, with another code each time.
var refusesHedges = func() func(http.Header) error {
	var n atomic.Int64
	return func(h http.Header) error {
		if h.Get(isHedge) == "" {
			return nil
		}
		all := []connect.Code{connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeInternal,
			connect.CodeAborted, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeCanceled}
		return connect.NewError(all[int(n.Add(1))%len(all)], errors.New("no hedges"))
	}
}()

func serveConnect(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	type in = connect.Request[wrapperspb.StringValue]
	mux.Handle("/test.Blobs/Get", connect.NewUnaryHandler("/test.Blobs/Get",
		func(_ context.Context, req *in) (*connect.Response[wrapperspb.BytesValue], error) {
			return connect.NewResponse(wrapperspb.Bytes(answer(req.Msg.Value))), refusesHedges(req.Header())
		}, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle("/test.Blobs/Watch", connect.NewServerStreamHandler("/test.Blobs/Watch",
		func(_ context.Context, req *in, st *connect.ServerStream[wrapperspb.BytesValue]) error {
			if err := refusesHedges(req.Header()); err != nil {
				return err
			}
			all := answer(req.Msg.Value)
			return errors.Join(st.Send(wrapperspb.Bytes(all[:1000])), st.Send(wrapperspb.Bytes(all[1000:])))
		}))
	return mux
}

func dialConnect(opts ...connect.ClientOption) func(*testing.T, *http.Client, string) caller {
	return func(t *testing.T, c *http.Client, url string) caller {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.BytesValue](c, url+"/test.Blobs/Get", opts...)
		return func(ctx context.Context, n int) error {
			res, err := client.CallUnary(ctx, connect.NewRequest(wrapperspb.String(strconv.Itoa(n))))
			if err != nil {
				return err
			}
			return check(res.Msg.Value, n)
		}
	}
}

func dialConnectStream(opts ...connect.ClientOption) func(*testing.T, *http.Client, string) caller {
	return func(t *testing.T, c *http.Client, url string) caller {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.BytesValue](c, url+"/test.Blobs/Watch", opts...)
		return func(ctx context.Context, n int) error {
			st, err := client.CallServerStream(ctx, connect.NewRequest(wrapperspb.String(strconv.Itoa(n))))
			if err != nil {
				return err
			}
			defer st.Close()
			var all []byte
			for st.Receive() {
				all = append(all, st.Msg().Value...)
			}
			if st.Err() != nil {
				return st.Err()
			}
			return check(all, n)
		}
	}
}

// serveAnswers answers a JSON body that has a number.
func serveAnswers(t *testing.T) http.Handler {
	number := regexp.MustCompile(`\d+`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Elastic-Product", "Elasticsearch")
		w.Write(answer(number.FindString(string(body))))
	})
}

func dialElastic(t *testing.T, c *http.Client, at string) caller {
	u, _ := url.Parse(at)
	client, err := elastictransport.NewClient(elastictransport.WithURLs(u), elastictransport.WithTransport(c.Transport),
		elastictransport.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	return search(client.Perform)
}

func checkResponse(n int) func(*http.Response, error) error {
	return func(res *http.Response, err error) error {
		if err != nil {
			return err
		}
		defer res.Body.Close()
		all, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			return fmt.Errorf("%s, %w", res.Status, err)
		}
		return check(all, n)
	}
}

func dialOpenAI(t *testing.T, c *http.Client, url string) caller {
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("key"), option.WithHTTPClient(c),
		option.WithMaxRetries(0))
	return complete(client, "model")
}

func complete(client openai.Client, model string) caller {
	return func(ctx context.Context, n int) error {
		st := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: model,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(fmt.Sprint("prompt ", n))}})
		defer st.Close()
		var all []byte
		for st.Next() {
			all = append(all, st.Current().Choices[0].Delta.Content...)
		}
		if st.Err() != nil {
			return st.Err()
		}
		return check(all, n)
	}
}

// serveLocks answers 409 to a key whose first request is being served, as Stripe does, and with the
// first answer afterwards.
func serveLocks(t *testing.T) http.Handler {
	var keys sync.Map // key → served
	next := serveAnswers(t)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served, known := keys.LoadOrStore(r.Header.Get("Idempotency-Key"), new(atomic.Bool))
		if known && !served.(*atomic.Bool).Load() {
			w.WriteHeader(http.StatusConflict)
			return
		}
		next.ServeHTTP(w, r)
		served.(*atomic.Bool).Store(true)
	})
}

func dialLocks(t *testing.T, c *http.Client, url string) caller {
	return func(ctx context.Context, n int) error {
		req, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(strconv.Itoa(n)))
		req.Header.Set("Idempotency-Key", strconv.Itoa(n))
		return checkResponse(n)(c.Do(req))
	}
}
