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
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
	"github.com/grpchedge/hedge/stream"
)

// slowStream has one message, which is slow. Its headers come at once.
type slowStream struct {
	grpc.ClientStream
	ctx  context.Context
	wait func(context.Context) (int, error)
}

func (s *slowStream) Context() context.Context     { return s.ctx }
func (s *slowStream) SendMsg(any) error            { return nil }
func (s *slowStream) CloseSend() error             { return nil }
func (s *slowStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (s *slowStream) Trailer() metadata.MD         { return nil }

func (s *slowStream) RecvMsg(any) error {
	_, err := s.wait(s.ctx)
	return err
}

// notProtobuf is a message of a codec of its own, as Jaeger's are.
type notProtobuf struct{ Text string }

// TestUnhedgeable has methods with mostly unhedgeable calls, for each reason. The page's sentence
// begins with the reason, the log has it once, and there is no prediction, with and without a dry
// run. Methods with hedgeable calls are the controls.
func TestUnhedgeable(t *testing.T) {
	small, large, foreign := &testpb.Request{Payload: []byte("x")}, &testpb.Request{Payload: make([]byte, 2<<20)},
		&notProtobuf{"x"}
	const none, most = "Calls cannot be hedged: ", "Most calls cannot be hedged: "
	latency := testserver.Straggler(testserver.Uniform(4*ms, 7*ms), 0.05, 10)
	for _, tc := range []struct {
		name           string
		options        []hedge.Option
		request, reply any
		timeout        time.Duration
		stream, header bool
		connection     bool
		every          int // calls between two that can be hedged; 0: none can
		want           stats.Reason
		sentence       string
	}{
		{name: "hedged", request: small, reply: small},
		{name: "hedged stream", request: small, reply: small, stream: true},
		{name: "foreign request", request: foreign, reply: small, want: stats.NotReplayable, sentence: none + "their messages"},
		{name: "foreign reply", request: small, reply: foreign, want: stats.NotReplayable, sentence: none + "their messages"},
		{name: "one in three is small", request: large, reply: small, every: 3, want: stats.NotReplayable,
			sentence: most + "their messages"},
		{name: "foreign messages of a stream", request: foreign, reply: foreign, stream: true, want: stats.NotReplayable,
			sentence: none + "their messages"},
		{name: "large request of a stream", request: large, reply: small, stream: true, want: stats.NotReplayable,
			sentence: none + "their messages"},
		{name: "headers first", request: small, reply: small, stream: true, header: true, want: stats.EarlyHeaders,
			sentence: none + "callers call Header first"},
		{name: "headers first, with WithWaitForMessage", options: []hedge.Option{hedge.WithWaitForMessage("/s/*")},
			request: small, reply: small, stream: true, header: true},
		{name: "deadline", request: small, reply: small, timeout: 12 * ms, want: stats.DeadlineNear,
			sentence: most + "their deadlines"},
		{name: "no policy", options: []hedge.Option{hedge.WithOtherBackendOnly(true)}, request: small, reply: small,
			connection: true, want: stats.NoOtherBackend, sentence: none + "WithOtherBackendOnly finds no other"},
	} {
		for _, dry := range []bool{false, true} {
			if tc.header && tc.want == "" && dry {
				continue // a stream that is not hedged does not wait
			}
			hedgetest.Run(t, tc.name+map[bool]string{true: ", dry run"}[dry], func(t *testing.T) {
				var log bytes.Buffer
				options := append([]hedge.Option{hedge.WithAllMethods(), hedge.WithDryRun(dry),
					hedge.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}, tc.options...)
				if tc.timeout > 0 {
					options = append(options, hedge.WithTrigger(hedge.Fixed(8*ms)))
				}
				s := hedgetest.New(t, options...)
				var cc *grpc.ClientConn
				if tc.connection {
					cc = testserver.StartT(t, testserver.Config{InMemory: true}).ClientT(t)
					testserver.ConnectT(t, cc)
				}
				for n := range 600 {
					wait := func(ctx context.Context) (int, error) {
						return hedgetest.Taking(latency.Draw(simulation.Generator(1, uint64(n), simulation.AttemptOf(ctx))))(ctx)
					}
					request := tc.request
					if tc.every > 0 && n%tc.every == 0 {
						request = small
					}
					ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Hour))
					if tc.stream {
						st, err := stream.Interceptor(s)(ctx, &grpc.StreamDesc{ServerStreams: true}, cc, "/s/Get",
							func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string,
								_ ...grpc.CallOption) (grpc.ClientStream, error) {
								return &slowStream{ctx: ctx, wait: wait}, nil
							})
						if err != nil {
							t.Fatal(err)
						}
						_ = st.SendMsg(request)
						if tc.header {
							_, _ = st.Header()
						}
						_ = st.RecvMsg(tc.reply)
					} else {
						_ = interceptor.Unary(s)(ctx, "/s/Get", request, tc.reply, cc,
							func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
								_, err := wait(ctx)
								return err
							})
					}
					cancel()
				}
				m := s.Methods()[0]
				text := get(debug.Handler(s), "", "").Body.String()
				warned := strings.Count(log.String(), `msg="method unhedgeable" target=`) // and never twice
				warned += strings.Count(log.String(), fmt.Sprintf(` method=/s/Get reason=%q`, tc.want)) - 1
				if tc.want == stats.NoReason {
					if m.Unhedgeable != "" || strings.Contains(text, "cannot be hedged") ||
						strings.Contains(log.String(), "unhedgeable") {
						t.Errorf("unhedgeable: %q, page\n%s\nlog\n%s", m.Unhedgeable, text, log.String())
					}
					if m.Hedged+m.DryRun == 0 || (m.Forecasts != nil) != dry {
						t.Errorf("%+v", m)
					}
					return
				}
				if m.Unhedgeable != tc.want || m.Forecasts != nil || m.Choice.PredictedTail != m.Choice.UnhedgedTail ||
					m.Choice.PredictedLoad != 0 {
					t.Errorf("unhedgeable %q, want %q; %v, %+v", m.Unhedgeable, tc.want, m.Forecasts, m.Choice)
				}
				says(t, text, "/s/Get\n    "+tc.sentence)
				if warned != 1 {
					t.Errorf("the log says so %d times:\n%s", warned, log.String())
				}
			})
		}
	}
}
