package debug_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestUnhedgeable has methods with mostly unhedgeable calls, for each reason. The page's sentence
// begins with the reason, after failures, the log has it once, and there is no prediction, with and without a dry
// run. Methods with hedgeable calls are the controls.
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
