package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/proto/inferencepb"
	"github.com/grpchedge/hedge/stats"
)

// triton streams the tokens of a prompt, as Triton does: each request of a stream has an answer,
// which is the words of its id.
type triton struct {
	inferencepb.UnimplementedGRPCInferenceServiceServer
	streams atomic.Int64
	// first is how long stream n waits before it reads the first request's answer; negative: it
	// then fails.
	first func(n int64) time.Duration
	waits bool // it answers only when the client has closed its side
	ended atomic.Int64
}

func (s *triton) ModelStreamInfer(st grpc.BidiStreamingServer[inferencepb.ModelInferRequest,
	inferencepb.ModelStreamInferResponse]) error {
	n := s.streams.Add(1) - 1
	defer s.ended.Add(1)
	var requests []*inferencepb.ModelInferRequest
	for {
		req, err := st.Recv()
		if err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		requests = append(requests, req)
		if len(requests) == 1 {
			d := s.first(n)
			select {
			case <-time.After(max(d, -d)):
			case <-st.Context().Done():
				return st.Context().Err()
			}
			if d < 0 {
				return status.Error(codes.Unavailable, "overloaded")
			}
		}
		if !s.waits {
			if err := answer(st, n, req); err != nil {
				return err
			}
		}
	}
	for _, req := range requests {
		if s.waits {
			if err := answer(st, n, req); err != nil {
				return err
			}
		}
	}
	return nil
}

func answer(st grpc.BidiStreamingServer[inferencepb.ModelInferRequest, inferencepb.ModelStreamInferResponse], n int64,
	req *inferencepb.ModelInferRequest) error {
	for token := range strings.FieldsSeq(req.GetId()) {
		res := &inferencepb.ModelInferResponse{ModelName: fmt.Sprint(n), Id: token}
		if err := st.Send(&inferencepb.ModelStreamInferResponse{InferResponse: res}); err != nil {
			return err
		}
	}
	return nil
}

const modelStreamInfer = inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName

// client connects to the server, in memory, and hedges as s says.
func (s *triton) client(t *testing.T, scheduler *hedge.Scheduler) inferencepb.GRPCInferenceServiceClient {
	listener := testserver.NewListener()
	server := grpc.NewServer()
	inferencepb.RegisterGRPCInferenceServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///triton", grpc.WithTransportCredentials(insecure.NewCredentials()),
		hedging(scheduler),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.Dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		serving.Wait()
	})
	return inferencepb.NewGRPCInferenceServiceClient(conn)
}

// tokens receives a number of tokens, all that are left if it is negative, and returns them with
// the number of their attempt.
func tokens(st grpc.BidiStreamingClient[inferencepb.ModelInferRequest, inferencepb.ModelStreamInferResponse],
	most int) (string, error) {
	var all []string
	for most < 0 || len(all) < most {
		res, err := st.Recv()
		if err == io.EOF {
			break
		} else if err != nil {
			return strings.Join(all, " "), err
		}
		all = append(all, res.GetInferResponse().GetModelName()+res.GetInferResponse().GetId())
	}
	return strings.Join(all, " "), nil
}

// TestSingleRequest races the streams of a bidirectional method.
func TestSingleRequest(t *testing.T) {
	slow := func(first, then time.Duration) func(int64) time.Duration {
		return func(n int64) time.Duration {
			if n == 0 {
				return first
			}
			return then
		}
	}
	// The client's actions after its request: close its side; send again after 12 ms; close after
	// 12 ms
	const closes, second, late = 1, 2, 4
	for _, tc := range []struct {
		name   string
		first  func(int64) time.Duration
		waits  bool // the server answers when the client has closed its side
		client int
		want   string
		err    codes.Code
		at     time.Duration // of the first token
		sent   int64
	}{
		{"no hedge is due", slow(5*ms, 0), false, closes, "0a 0b", 0, 5 * ms, 1},
		{"a hedge wins", slow(time.Hour, 5*ms), false, closes, "1a 1b", 0, 15 * ms, 2},
		{"a hedge wins, and the stream stays open", slow(time.Hour, 5*ms), false, 0, "1a 1b", 0, 15 * ms, 2},
		{"a hedge closes its side", slow(time.Hour, 5*ms), true, closes, "1a 1b", 0, 15 * ms, 2},
		{"the client closes while a hedge is in flight", slow(time.Hour, time.Millisecond), true, late, "1a 1b", 0, 12 * ms,
			2},
		{"a second request while the primary is slow", slow(30*ms, 5*ms), false, second, "0a 0b 0c 0d", 0, 30 * ms, 2},
		{"a second request when the primary has failed", slow(-11*ms, 50*ms), false, second, "", codes.Unavailable, 12 * ms,
			2},
		{"a second request to the hedge that has won", slow(time.Hour, ms), false, second, "1a 1b 1c 1d", 0, 11 * ms, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &triton{first: tc.first, waits: tc.waits}
				s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest("/inference.*/ModelStreamInfer"), hedge.WithMaxHedges(1))
				ctx, cancel := context.WithCancel(t.Context())
				st, err := server.client(t, s).ModelStreamInfer(ctx)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				send := func(id string) {
					if err := st.Send(&inferencepb.ModelInferRequest{Id: id}); err != nil && err != io.EOF {
						t.Error(err)
					}
				}
				send("a b")
				if tc.client == closes {
					st.CloseSend()
				}
				var sender sync.WaitGroup
				sender.Go(func() {
					time.Sleep(12 * ms)
					switch tc.client {
					case second:
						send("c d")
						fallthrough
					case late:
						st.CloseSend()
					}
				})
				got, err := tokens(st, 1)
				took := time.Since(began)
				if err == nil {
					most := -1
					if tc.client == 0 { // it ends with its context
						most = 1
					}
					var more string
					more, err = tokens(st, most)
					got += " " + more
				}
				if got != tc.want || status.Code(err) != tc.err || took != tc.at || server.streams.Load() != tc.sent {
					t.Errorf("%q, %v after %v from %d streams, want %q after %v from %d", got, err, took, server.streams.Load(),
						tc.want, tc.at, tc.sent)
				}
				sender.Wait()
				if n := s.Stats().SecondRequest; (n == 1) != (tc.client == second) {
					t.Errorf("%d second requests", n)
				}
				cancel()
				synctest.Wait()
				if begun, ended := server.streams.Load(), server.ended.Load(); begun != ended {
					t.Errorf("%d of %d streams are still running", begun-ended, begun)
				}
			})
		})
	}
}

// TestSingleRequest_Often: a method with callers that send a second message is not hedged, until they
// no longer do.
func TestSingleRequest_Often(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &triton{first: func(int64) time.Duration { return 20 * ms }}
		s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest(modelStreamInfer), hedge.WithMaxHedges(1))
		client := server.client(t, s)
		converse := func(streams, requests int) stats.Counts {
			before := s.Stats()
			for range streams {
				ctx, cancel := context.WithCancel(t.Context())
				st, err := client.ModelStreamInfer(ctx)
				for range requests {
					err = errors.Join(err, st.Send(&inferencepb.ModelInferRequest{Id: "a"}))
					_, answer := tokens(st, 1)
					err = errors.Join(err, answer)
				}
				if err != nil {
					t.Fatal(err)
				}
				cancel()
				synctest.Wait()
			}
			c := s.Stats()
			return stats.Counts{Hedged: c.Hedged - before.Hedged, NotReplayable: c.NotReplayable - before.NotReplayable,
				SecondRequest: c.SecondRequest - before.SecondRequest}
		}
		for _, step := range []struct {
			streams, requests int
			want              stats.Counts
		}{
			{50, 1, stats.Counts{Hedged: 50}},
			{20, 2, stats.Counts{Hedged: 4, NotReplayable: 16, SecondRequest: 20}},
			{150, 1, stats.Counts{Hedged: 38, NotReplayable: 112}},
		} {
			if got := converse(step.streams, step.requests); got != step.want {
				t.Errorf("%d streams of %d requests: %+v, want %+v", step.streams, step.requests, got, step.want)
			}
		}
	})
}

// TestSingleRequest_OnlyWhereNamed: other bidirectional methods are passed through.
func TestSingleRequest_OnlyWhereNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &triton{first: func(int64) time.Duration { return 20 * ms }}
		s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest("/inference.GRPCInferenceService/Other"))
		st, err := server.client(t, s).ModelStreamInfer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.Send(&inferencepb.ModelInferRequest{Id: "a b"})
		st.CloseSend()
		got, err := tokens(st, -1)
		if c := s.Stats(); got != "0a 0b" || err != nil || c.PassedThrough != 1 || c.Calls != 0 {
			t.Errorf("%q, %v, %+v", got, err, c)
		}
	})
}
