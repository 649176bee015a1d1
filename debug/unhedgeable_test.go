package debug_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestUnhedgeable has methods with mostly unhedgeable calls, for each reason. The page's sentence
// begins with the reason, after failures, the log has it once, and there is no prediction, with and
// without a dry run. Methods with hedgeable calls are the controls.
func TestUnhedgeable(t *testing.T) {
	const none, most = "Calls cannot be hedged: ", "Most calls cannot be hedged: "
	early := hedge.WithTrigger(hedge.Fixed(ms)) // calls with foreign replies fail, and so teach nothing
	latency := testserver.Straggler(testserver.Uniform(4*ms, 7*ms), 0.05, 10)
	for _, tc := range []struct {
		name           string
		option         hedge.Option
		foreign        int // of three replies: they are no protobuf messages
		timeout        time.Duration
		call           []grpc.CallOption // of unary calls
		stream, header bool
		want           stats.Reason
		sentence       string
	}{
		{name: "hedged"},
		{name: "hedged stream", stream: true},
		{name: "foreign replies", option: early, foreign: 3, want: stats.NotReplayable, sentence: none + "their messages"},
		{name: "two in three are foreign", option: early, foreign: 2, want: stats.NotReplayable,
			sentence: most + "their messages"},
		{name: "foreign messages of a stream", option: early, foreign: 3, stream: true, want: stats.NotReplayable,
			sentence: none + "their messages"},
		{name: "an option that embeds one", call: []grpc.CallOption{struct{ grpc.CallOption }{grpc.WaitForReady(true)}},
			want: stats.UnknownOption, sentence: none + "a call option of theirs embeds"},
		{name: "headers first", stream: true, header: true, want: stats.EarlyHeaders,
			sentence: none + "callers call Header first"},
		{name: "headers first, with WithWaitForMessage", option: hedge.WithWaitForMessage("/*/*"), stream: true,
			header: true},
		{name: "deadline", option: hedge.WithTrigger(hedge.Fixed(8 * ms)), timeout: 12 * ms, want: stats.DeadlineNear,
			sentence: most + "their deadlines"},
	} {
		for _, dry := range []bool{false, true} {
			if tc.header && tc.want == "" && dry {
				continue // a stream that is not hedged does not wait
			}
			hedgetest.Run(t, tc.name+map[bool]string{true: ", dry run"}[dry], func(t *testing.T) {
				var log bytes.Buffer
				s := hedgetest.All(t, hedge.WithDryRun(dry), hedge.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
					tc.option)
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, CountsOnly: true, Seed: 1, DrawByID: true,
					Script: func(a testserver.Attempt) testserver.Plan {
						return testserver.Plan{Delay: a.Draw(latency), Header: metadata.Pairs("a", "b"), HeaderAtOnce: true}
					}})
				conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
				for n := range 300 {
					r, reply := &testpb.Request{Id: uint64(n) + 1, Messages: 1}, any(&testpb.Reply{})
					if n%3 < tc.foreign {
						reply = new(any)
					}
					ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Hour))
					if !tc.stream {
						_ = conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, r, reply, tc.call...)
					} else if st, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, r); err == nil {
						if tc.header {
							_, _ = st.Header()
						}
						_ = st.RecvMsg(reply)
					}
					cancel()
				}
				m := s.Methods()[0]
				text := get(debug.Handler(s), "", "").Body.String()
				told := fmt.Sprintf(" method=%s reason=%q\n", m.Method, tc.want)
				if m.Unhedgeable != tc.want || strings.Count(log.String(), "unhedgeable") != map[bool]int{true: 1}[tc.want != ""] ||
					tc.want != "" && !strings.Contains(log.String(), told) {
					t.Errorf("unhedgeable: %q, want %q; the log is\n%s", m.Unhedgeable, tc.want, log.String())
				}
				if tc.want == "" {
					if strings.Contains(text, "cannot be hedged") || m.Hedged+m.DryRun == 0 || (m.Forecasts != nil) != dry {
						t.Errorf("%+v; the page is\n%s", m, text)
					}
					return
				}
				if says(t, text, tc.sentence); m.Failed == 0 {
					says(t, text, m.Method+"\n    "+tc.sentence)
				}
				if m.Forecasts != nil || m.Choice.PredictedTail != m.Choice.UnhedgedTail || m.Choice.PredictedLoad != 0 {
					t.Errorf("forecasts %v and the choice %+v, want no predictions", m.Forecasts, m.Choice)
				}
			})
		}
	}
}

// TestHandler_Outage has every call fail for four of nine minutes, with a reader only at the end.
// The page begins with that, the latency is unknown, and the curve has a gap. Three minutes later
// only the curve shows it.
func TestHandler_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		handler := debug.Handler(s)
		phase := func(minutes int, err error) {
			for range minutes * 600 {
				_, _ = hedge.Do(t.Context(), s, "shop", "/shop.Items/Get", func(context.Context) (int, error) {
					time.Sleep(5 * ms)
					return 0, err
				})
				time.Sleep(95 * ms)
			}
		}
		phase(2, nil)
		phase(4, status.Error(codes.Unavailable, "down"))
		says(t, get(handler, "", "").Body.String(), "failed lately: ", "    All calls of the last ", "failed calls, last")
		html := get(handler, "", "text/html").Body.String()
		says(t, html, `class="alarm"><dt>failed lately`, `class="sentence down">All calls`)
		var parsed struct {
			Recent  struct{ Calls, Failed int64 }
			Methods []struct{ History []registry.Sample }
		}
		body := get(handler, "?format=json", "").Body.Bytes()
		if err := json.Unmarshal(body, &parsed); err != nil || len(parsed.Methods) != 1 {
			t.Fatal(err, parsed)
		}
		if parsed.Recent.Failed < 600 || parsed.Recent.Failed < parsed.Recent.Calls {
			t.Errorf("%+v, want only failed calls", parsed.Recent)
		}
		newest := parsed.Methods[0].History[len(parsed.Methods[0].History)-1]
		if newest.Tail != 0 || newest.Unhedged != 0 {
			t.Errorf("the newest sample is %+v, want no latency", newest)
		}
		phase(3, nil)
		text := get(handler, "", "").Body.String()
		if says(t, text, "failed lately: 0 of", "p99 of callers"); strings.Contains(text, "All calls") {
			t.Errorf("the outage is over, and the page is\n%s", text)
		}
		html = get(handler, "", "text/html").Body.String()
		if curves := strings.Count(html, `<polyline class="with"`); curves != 3 { // two of p99, and the extra load
			t.Errorf("%d parts of curves, want a gap in the p99 of\n%s", curves, html)
		}
	})
}
