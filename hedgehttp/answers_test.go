package hedgehttp_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// dial connects to the listener. A transport may dial for a canceled request after a test has ended.
func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, its := net.Pipe()
	select {
	case p.conns <- its:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error { close(p.closed); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inMemory returns a transport to a server that answers attempt n of all requests, 0 being the
// first, with attempts[n].
func inMemory(t *testing.T, http2 bool, attempts ...http.HandlerFunc) *http.Transport {
	listener := pipes{make(chan net.Conn), make(chan struct{})}
	protocols, sent := new(http.Protocols), new(atomic.Int64)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(sent.Add(1)) - 1
		w.Header().Set("Attempt", strconv.Itoa(n))
		io.Copy(io.Discard, r.Body)
		if n < len(attempts) {
			attempts[n](w, r)
		} else {
			<-r.Context().Done() // never
		}
	})}
	go server.Serve(listener)
	base := &http.Transport{Protocols: protocols, DialContext: listener.dial}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		server.Close()
	})
	return base
}

// answers sends a status after a while.
func answers(after time.Duration, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wait(r.Context(), after) == nil {
			w.WriteHeader(status)
		}
	}
}

// after serves later.
func after(d time.Duration, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wait(r.Context(), d) == nil {
			then(w, r)
		}
	}
}

// TestRule02_HTTPAnswers runs each row of the table of docs/http.md on both attempts and in both
// orders. The hedge is sent after 10 ms.
func TestRule02_HTTPAnswers(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[int]bool{}
	rows := regexp.MustCompile(`(?m)^\| ([^|]*\d[^|]*) \| (ends it|ends it, from a primary|waits) \| [A-Z_]+ \| (yes|no) \|$`)
	for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
		for _, status := range statuses(row[1], tested) {
			for _, http2 := range []bool{false, true} {
				hedgetest.Run(t, fmt.Sprintf("%d HTTP/2 %t", status, http2), func(t *testing.T) {
					answersOnBothAttempts(t, http2, status, row[2] != "waits", row[2] == "ends it", row[3] == "yes")
				})
			}
		}
	}
	if len(tested) < 30 {
		t.Errorf("%d statuses were tested: docs/http.md has another table", len(tested))
	}
}

// statuses returns the statuses of a row, and marks them as tested. "other 4xx" and "other 5xx and
// above" name ranges; a sample is returned.
func statuses(row string, tested map[int]bool) (found []int) {
	samples := []int{200, 201, 204, 206, 304, 400, 401, 403, 405, 407, 408, 409, 412, 416, 421, 422, 425, 451, 498, 499,
		501, 502, 503, 505, 506, 507, 508, 510, 511, 520, 524, 529, 530, 598, 599, 777}
	from, to := 0, 0
	switch {
	case strings.HasPrefix(row, "below"):
		to = 399
	case strings.Contains(row, "4xx"):
		from, to = 400, 499
	case strings.Contains(row, "5xx"):
		from, to = 500, 999
	default:
		for _, group := range regexp.MustCompile(`(\d+)(?: to (\d+))?`).FindAllStringSubmatch(row, -1) {
			first, _ := strconv.Atoi(group[1])
			last, _ := strconv.Atoi(group[2])
			for n := first; n <= max(first, last); n++ {
				found = append(found, n)
			}
		}
	}
	for _, s := range samples {
		if from <= s && s <= to {
			found = append(found, s)
		}
	}
	found = slices.DeleteFunc(found, func(s int) bool { return tested[s] })
	for _, s := range found {
		tested[s] = true
	}
	return found
}

func answersOnBothAttempts(t *testing.T, http2 bool, status int, ends, hedgeEnds, teaches bool) {
	good := 200
	if status < 300 {
		good = 202
	}
	for _, tc := range []struct {
		name     string
		attempts []http.HandlerFunc
		want     string // status, attempt
	}{
		{"the primary's, before a hedge", []http.HandlerFunc{answers(5*ms, status)}, fmt.Sprint(status, " 0")},
		{"the hedge's, first", []http.HandlerFunc{answers(100*ms, good), answers(ms, status)},
			choose(hedgeEnds, fmt.Sprint(status, " 1"), fmt.Sprint(good, " 0"))},
		{"the primary's, first", []http.HandlerFunc{answers(15*ms, status), answers(50*ms, good)},
			choose(ends, fmt.Sprint(status, " 0"), fmt.Sprint(good, " 1"))},
		{"both attempts', the hedge's first", []http.HandlerFunc{answers(100*ms, status), answers(ms, status)},
			choose(hedgeEnds, fmt.Sprint(status, " 1"), fmt.Sprint(status, " 0"))},
		{"both attempts', the primary's first", []http.HandlerFunc{answers(15*ms, status), answers(50*ms, status)},
			fmt.Sprint(status, " 0")},
	} {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		rt := hedgehttp.Transport(s, inMemory(t, http2, tc.attempts...))
		if got := attemptOf(rt, "GET", nil); got != tc.want {
			t.Errorf("%s: the response is %s, want %s", tc.name, got, tc.want)
		}
	}
	s := hedgetest.All(t)
	rt := hedgehttp.Transport(s, inMemory(t, http2, slices.Repeat([]http.HandlerFunc{answers(5*ms, status)}, 40)...))
	for range 40 {
		attemptOf(rt, "GET", nil)
	}
	if _, learned := s.Latency("http://host", s.Methods()[0].Method, 0.5); learned != teaches {
		t.Errorf("a primary's latency is learned: %t, want %t", learned, teaches)
	}
}

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// attemptOf makes a request and returns the status and the attempt of the response.
func attemptOf(rt http.RoundTripper, method string, edit func(*http.Request)) string {
	req, _ := http.NewRequest(method, "http://host/pkg.Svc/Get", nil)
	if edit != nil {
		edit(req)
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return fmt.Sprint(res.StatusCode, " ", res.Header.Get("Attempt"))
}

// TestRule02_StatusesInsideA200 has the statuses of calls inside HTTP responses: they decide as
// gRPC's do.
func TestRule02_StatusesInsideA200(t *testing.T) {
	type call func(w http.ResponseWriter, code int, name, pushback string)
	grpcWeb := func(code int, pushback string) []byte {
		trailer := fmt.Sprintf("grpc-message: %s\r\ngrpc-status: %d\r\n", strings.Repeat("m", 600), code)
		if pushback != "" {
			trailer += "grpc-retry-pushback-ms: " + pushback + "\r\n"
		}
		return []byte(trailer)
	}
	connect := func(name, pushback string) []byte {
		end := fmt.Sprintf(`{"error":{"code":%q,"message":"m"},"metadata":{"grpc-retry-pushback-ms":[%q]}}`, name, pushback)
		if pushback == "" {
			end = fmt.Sprintf(`{"error":{"code":%q}}`, name)
		}
		return []byte(end)
	}
	sends := func(w http.ResponseWriter, contentType string, body []byte) {
		w.Header().Set("Content-Type", contentType)
		w.(http.Flusher).Flush()
		for part := range slices.Chunk(body, 3) { // a byte may come at any time
			w.Write(part)
			w.(http.Flusher).Flush()
		}
	}
	for name, call := range map[string]call{
		"gRPC, in headers": func(w http.ResponseWriter, code int, _, pushback string) {
			w.Header().Set("Grpc-Status", strconv.Itoa(code))
			setPushback(w.Header(), pushback)
			sends(w, "application/grpc", nil)
		},
		"gRPC, in trailers": func(w http.ResponseWriter, code int, _, pushback string) {
			sends(w, "application/grpc+proto", nil)
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(code))
			setPushback(w.Header(), pushback)
		},
		"gRPC-Web": func(w http.ResponseWriter, code int, _, pushback string) {
			sends(w, "application/grpc-web+proto", frame(0x80, grpcWeb(code, pushback)))
		},
		"gRPC-Web, compressed": func(w http.ResponseWriter, code int, _, pushback string) {
			sends(w, "application/grpc-web+proto", frame(0x81, gzipped(grpcWeb(code, pushback))))
		},
		"gRPC-Web, text": func(w http.ResponseWriter, code int, _, pushback string) {
			sends(w, "application/grpc-web-text+proto",
				[]byte(base64.StdEncoding.EncodeToString(frame(0x80, grpcWeb(code, pushback)))))
		},
		"a stream of Connect": func(w http.ResponseWriter, _ int, name, pushback string) {
			sends(w, "application/connect+json", frame(0x02, connect(name, pushback)))
		},
		"a stream of Connect, compressed": func(w http.ResponseWriter, _ int, name, pushback string) {
			sends(w, "application/connect+proto", frame(0x03, gzipped(connect(name, pushback))))
		},
		"a call of Connect": func(w http.ResponseWriter, code int, name, pushback string) {
			w.Header().Set("Content-Type", "application/json")
			setPushback(w.Header(), pushback)
			w.WriteHeader(map[int]int{5: 404, 6: 409, 8: 429, 12: 501, 14: 503}[code])
			fmt.Fprintf(w, `{"code":%q,"message":"m"}`, name)
		},
	} {
		for _, http2 := range []bool{false, true} {
			hedgetest.Run(t, fmt.Sprintf("%s HTTP/2 %t", name, http2), func(t *testing.T) {
				for _, tc := range []struct {
					code           int
					name, pushback string
					hedge, primary string // the winner, if the hedge's or the primary's comes first
				}{
					{code: 5, name: "not_found", hedge: "1", primary: "0"},
					{code: 6, name: "already_exists", hedge: "1", primary: "0"},
					{code: 12, name: "unimplemented", hedge: "1", primary: "0"},
					{code: 14, name: "unavailable", hedge: "0", primary: "1"},
					{code: 8, name: "resource_exhausted", hedge: "0", primary: "1"},
					{code: 14, name: "unavailable", pushback: "60000", hedge: "0", primary: "1"},
				} {
					bad := func(w http.ResponseWriter, _ *http.Request) { call(w, tc.code, tc.name, tc.pushback) }
					good := func(w http.ResponseWriter, _ *http.Request) {
						sends(w, "application/grpc-web", frame(0, []byte("message")))
					}
					hedge := hedge.WithReadOnlyMethods("/pkg.Svc/Get")
					s := hedgetest.Fixed(t, 10*ms, hedge)
					rt := hedgehttp.Transport(s, inMemory(t, http2, after(100*ms, good), after(ms, bad), after(ms, good)))
					want := tc.hedge
					if tc.pushback == "" && want == "0" {
						want = "2" // without it, another hedge is sent after 20 ms
					}
					if got := attemptOf(rt, "POST", connectHeader); !strings.HasSuffix(got, " "+want) {
						t.Errorf("%s, the hedge's: the response is %s, want attempt %s", tc.name, got, want)
					}
					s = hedgetest.Fixed(t, 10*ms, hedge)
					rt = hedgehttp.Transport(s, inMemory(t, http2, after(15*ms, bad), after(20*ms, good)))
					if got := attemptOf(rt, "POST", connectHeader); !strings.HasSuffix(got, " "+tc.primary) {
						t.Errorf("%s, the primary's: the response is %s, want attempt %s", tc.name, got, tc.primary)
					}
				}
			})
		}
	}
}

func connectHeader(r *http.Request) { r.Header.Set("Connect-Protocol-Version", "1") }

func setPushback(h http.Header, pushback string) {
	if pushback != "" {
		h.Set("Grpc-Retry-Pushback-Ms", pushback)
		h.Set(http.TrailerPrefix+"Grpc-Retry-Pushback-Ms", pushback)
	}
}

func frame(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

// subscription sends the headers of a stream at once, and its first event later.
func subscription(first time.Duration) http.HandlerFunc { return eventsOf("text/event-stream", first) }

func eventsOf(mediaType string, first time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.(http.Flusher).Flush()
		if wait(r.Context(), first) == nil {
			io.WriteString(w, "data: 1\n\n")
		}
	}
}

// TestRule02_AHedgeTakesNoStream: while a primary that has sent the headers of a stream has no first
// byte, a hedge wins only with the first byte of another response.
func TestRule02_AHedgeTakesNoStream(t *testing.T) {
	for name, tc := range map[string]struct {
		hedge http.HandlerFunc
		want  string
	}{
		"409":                    {answers(ms, 409), "200 0"},
		"404":                    {answers(ms, 404), "200 0"},
		"204":                    {answers(ms, 204), "200 0"},
		"302":                    {answers(ms, 302), "200 0"},
		"an empty 200":           {answers(ms, 200), "200 0"},
		"an empty stream":        {after(ms, serves("", "Content-Type", "text/event-stream")), "200 0"},
		"a call that is refused": {after(ms, serves("", "Content-Type", "application/grpc", "Grpc-Status", "5")), "200 0"},
		"a 206 with a body": {after(ms, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			io.WriteString(w, "body")
		}), "206 1"},
		"another stream": {subscription(ms), "200 1"},
	} {
		for _, http2 := range []bool{false, true} {
			hedgetest.Run(t, fmt.Sprintf("%s HTTP/2 %t", name, http2), func(t *testing.T) {
				s := hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedge.WithMaxHedges(1))
				rt := hedgehttp.Transport(s, inMemory(t, http2, subscription(100*ms), tc.hedge))
				if got := attemptOf(rt, "POST", connectHeader); got != tc.want {
					t.Errorf("the response is %s, want %s", got, tc.want)
				}
			})
		}
	}
}

// TestTransport_Subscriptions: a GET of an event stream may have no event for long. It is hedged, and
// returns with its first byte, only if it is selected.
func TestTransport_Subscriptions(t *testing.T) {
	for _, mediaType := range []string{"text/event-stream", "application/x-ndjson", "application/jsonl; charset=utf-8",
		"application/json-seq"} {
		t.Run(mediaType, func(t *testing.T) { testSubscriptions(t, mediaType) })
	}
}

func testSubscriptions(t *testing.T, mediaType string) {
	accepts := func(r *http.Request) { r.Header.Set("Accept", mediaType) }
	nothing := hedgehttp.WithFirstByte(func(*http.Response) bool { return false })
	anything := hedgehttp.WithFirstByte(func(*http.Response) bool { return true })
	named := hedgehttp.WithName(func(*http.Request) string { return "events" })
	for name, tc := range map[string]struct {
		method  string // empty: GET
		edit    func(*http.Request)
		headers time.Duration
		opt     hedge.Option
		http    hedgehttp.Option
		hedges  int64
		returns time.Duration // when RoundTrip does; 0: with the first event
	}{
		"a POST":                           {method: "POST", opt: hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedges: 2},
		"by Accept":                        {edit: accepts, headers: 50 * ms, returns: 50 * ms},
		"by Content-Type":                  {returns: 1},
		"by Content-Type, headers late":    {headers: 15 * ms, hedges: 1, returns: 15 * ms},
		"by Accept, with WithFirstByte":    {edit: accepts, http: anything, hedges: 2},
		"by Accept, with a name":           {edit: accepts, opt: hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedges: 2},
		"by Content-Type, with a name":     {opt: hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedges: 2},
		"by Content-Type, with its path":   {opt: hedge.WithReadOnlyMethods("GET /pkg.Svc/Get"), http: named, hedges: 2},
		"by Content-Type, WithFirstByte":   {http: anything, hedges: 2},
		"by Accept, of another first byte": {edit: accepts, http: nothing, returns: 1},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, tc.opt)
			base := inMemory(t, false, after(tc.headers, eventsOf(mediaType, 30*ms)), answers(ms, 409), answers(ms, 409))
			rt := hedgehttp.Transport(s, base, tc.http)
			began, returned := time.Now(), time.Duration(0)
			noted := roundTrip(func(r *http.Request) (*http.Response, error) {
				defer func() { returned = time.Since(began) }()
				return rt.RoundTrip(r)
			})
			want := tc.headers + 30*ms
			if got := attemptOf(noted, cmp.Or(tc.method, "GET"), tc.edit); got != "200 0" || time.Since(began) != want {
				t.Errorf("%s after %v, want the primary's after %v", got, time.Since(began), want)
			}
			if at := cmp.Or(tc.returns, want); returned.Truncate(ms) != at.Truncate(ms) {
				t.Errorf("RoundTrip returned after %v, want %v", returned, at)
			}
			if n := s.Stats().Hedges; n != tc.hedges {
				t.Errorf("%d hedges were sent, want %d", n, tc.hedges)
			}
		})
	}
}

func TestTransport_SlowUploads(t *testing.T) {
	hedgetest.Run(t, "virtual", func(t *testing.T) {
		for _, s := range []*hedge.Scheduler{hedgetest.Fixed(t, 20*ms), hedgetest.All(t)} {
			rt := hedgehttp.Transport(s, inMemory(t, false, slices.Repeat([]http.HandlerFunc{answers(10*ms, 200)}, 200)...))
			for n := range 200 {
				req, _ := http.NewRequest("GET", "http://host", &slowly{Reader: strings.NewReader("body"), after: 100 * ms})
				if req.ContentLength = 4; n%4 == 0 {
					req.ContentLength = -1 // sent as it is read
					req.GetBody = nil
				}
				res, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
			}
			if c := s.Stats(); c.Hedges != 0 {
				t.Errorf("%d hedges were sent, want none", c.Hedges)
			}
			if p99, ok := s.Latency("http://host", "GET", 0.99); !ok || p99 > 11*ms {
				t.Errorf("p99 %v, %t: it includes the uploads", p99, ok)
			}
		}
	})
}

// TestTransport_UnselectedUploads: a request that no option selects is sent as its body is read, also while
// hedging is off or paused.
func TestTransport_UnselectedUploads(t *testing.T) {
	for _, mode := range []string{"on", "off", "paused"} {
		hedgetest.Run(t, mode, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithOff(mode == "off"))
			if mode == "paused" {
				s.Pause()
			}
			rt := hedgehttp.Transport(s, roundTrip(func(req *http.Request) (*http.Response, error) {
				time.Sleep(10 * ms)
				return &http.Response{StatusCode: 200, Body: http.NoBody}, req.Body.Close()
			}))
			body := &slowly{Reader: strings.NewReader("body"), after: time.Second}
			req, _ := http.NewRequest("POST", "http://host", body)
			req.ContentLength = 4
			began := time.Now()
			if _, err := rt.RoundTrip(req); err != nil || time.Since(began) != 10*ms {
				t.Errorf("%v after %v, want the response after 10 ms", err, time.Since(began))
			}
		})
	}
}

type slowly struct {
	io.Reader
	after time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	time.Sleep(s.after)
	s.after = 0
	return s.Reader.Read(p)
}

// TestRule08_ResponsesWithoutABody: their contexts end, though the caller neither reads nor closes
// their bodies.
func TestRule08_ResponsesWithoutABody(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, request := range []string{"GET 204", "GET 304", "HEAD 200", "HEAD 404", "GET 302"} {
			hedgetest.Run(t, fmt.Sprintf("%s HTTP/2 %t", request, http2), func(t *testing.T) {
				method, number, _ := strings.Cut(request, " ")
				status, _ := strconv.Atoi(number)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				rt := hedgehttp.Transport(hedgetest.Fixed(t, 10*ms), inMemory(t, http2, answers(ms, status)))
				req, _ := http.NewRequestWithContext(ctx, method, "http://host", nil)
				res, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				stays := func() int { return reflect.ValueOf(ctx).Elem().FieldByName("children").Len() }
				if n := stays(); n != 0 {
					t.Errorf("%d contexts stay with the caller's", n)
				}
				if all, err := io.ReadAll(res.Body); len(all) > 0 || err != nil {
					t.Errorf("the body is %q, %v; want none", all, err)
				}
				if n := stays(); n != 0 {
					t.Errorf("%d contexts stay with the caller's after the end of the body", n)
				}
				res.Body.Close()
			})
		}
	}
}

// TestTransport_AcceptableGetsNil: without a response, WithAcceptable gets nil, and not a nil
// *http.Response.
func TestTransport_AcceptableGetsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var replies []any
		s := hedgetest.Fixed(t, 10*ms, hedge.WithNonFatalCodes(), hedge.WithAcceptable(
			func(_ context.Context, _ string, reply any, _ error) bool {
				replies = append(replies, reply)
				return true
			}))
		rt := hedgehttp.Transport(s, &fake{script: script{{after: 5 * ms}}})
		attemptOf(rt, "GET", nil)
		if len(replies) != 1 || replies[0] != nil {
			t.Errorf("WithAcceptable got %#v, want one nil", replies)
		}
	})
}

// TestTransport_UnhedgedStatuses: the status inside a response counts where no hedge is due, too.
func TestTransport_UnhedgedStatuses(t *testing.T) {
	for name, status := range map[string]struct {
		code    string
		failure bool
	}{"NOT_FOUND": {"5", false}, "UNAVAILABLE": {"14", true}, "OK": {"0", false}} {
		for mode, s := range map[string]func(testing.TB, ...hedge.Option) *hedge.Scheduler{"warm-up": hedgetest.All,
			"hedged": func(t testing.TB, opts ...hedge.Option) *hedge.Scheduler {
				return hedgetest.Fixed(t, time.Hour, opts...)
			}} {
			hedgetest.Run(t, name+" "+mode, func(t *testing.T) {
				s := s(t, hedgetest.Throttle(10, 0.1))
				body := frame(0x80, []byte("grpc-status: "+status.code+"\r\n"))
				rt := hedgehttp.Transport(s, inMemory(t, false, serves(string(body), "Content-Type", "application/grpc-web")))
				attemptOf(rt, "GET", nil)
				want := 10.0
				if status.failure {
					want = 9
				}
				if got := s.Methods()[0].ThrottleTokens; got != want {
					t.Errorf("the throttle has %v tokens, want %v", got, want)
				}
			})
		}
	}
}

// TestTransport_AConnectionOfALoser: package net/http may fail a request on a connection whose last
// request was a loser, with that loser's cause. The request is sent again if HTTP allows it.
func TestTransport_AConnectionOfALoser(t *testing.T) {
	for _, tc := range []struct{ method, want string }{{"GET", "200 2"}, {"POST", rpc.ErrLost.Error()}} {
		for name, s := range map[string]*hedge.Scheduler{
			"hedged": hedgetest.Fixed(t, time.Hour), "warm-up": hedgetest.All(t)} {
			sent := 0
			rt := hedgehttp.Transport(s, roundTrip(func(req *http.Request) (*http.Response, error) {
				if sent++; sent == 1 {
					return nil, rpc.ErrLost
				}
				return &http.Response{StatusCode: 200, Header: http.Header{"Attempt": {fmt.Sprint(sent)}}, Body: http.NoBody}, nil
			}))
			if got := attemptOf(rt, tc.method, nil); got != tc.want {
				t.Errorf("%s %s: the response is %s, want %s", name, tc.method, got, tc.want)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (rt roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }
