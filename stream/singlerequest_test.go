package stream_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// answers receives a number of answers, all that are left if it is negative, and returns the
// attempts that they are from. The server answers each request, and ends when the client has closed
// its side.
func answers(st grpc.BidiStreamingClient[testpb.Request, testpb.Reply], most int) (attempts []uint32, err error) {
	for most < 0 || len(attempts) < most {
		reply, err := st.Recv()
		if err == io.EOF {
			break
		} else if err != nil {
			return attempts, err
		}
		attempts = append(attempts, reply.Attempt)
	}
	return attempts, nil
}

// closing counts the calls of CloseSend of an attempt.
type closing struct {
	grpc.ClientStream
	closed *atomic.Int64
}

func (c closing) CloseSend() error {
	c.closed.Add(1)
	return c.ClientStream.CloseSend()
}

func TestSingleRequest(t *testing.T) {
	// The client's actions after its request: close its side; send again after 12 ms; neither. All
	// but the last also close the side after 12 ms: the first for a second time, as a deferred call
	// does.
	const closes, second, late = 1, 2, 4
	for _, tc := range []struct {
		name           string
		primary, hedge testserver.Plan
		client         int
		want           []uint32
		err            codes.Code
		at             time.Duration // of the first answer
		sent           int
	}{
		{name: "no hedge is due", primary: delivers(5 * ms), hedge: slow(), client: closes, want: []uint32{0}, at: 5 * ms,
			sent: 1},
		{name: "a hedge wins", primary: slow(), hedge: delivers(5 * ms), client: closes, want: []uint32{1}, at: 15 * ms,
			sent: 2},
		{name: "a hedge wins, and the stream stays open", primary: slow(), hedge: delivers(5 * ms), want: []uint32{1},
			at: 15 * ms, sent: 2},
		{name: "the client closes while a hedge is in flight", primary: slow(), hedge: delivers(5 * ms), client: late,
			want: []uint32{1}, at: 15 * ms, sent: 2},
		{name: "a second request while the primary is slow", primary: delivers(30 * ms), hedge: delivers(5 * ms),
			client: second, want: []uint32{0, 0}, at: 30 * ms, sent: 2},
		{name: "a second request when the primary has failed", primary: breaks(11*ms, codes.Unavailable),
			hedge: delivers(50 * ms), client: second, err: codes.Unavailable, at: 12 * ms, sent: 2},
		{name: "a second request to the hedge that has won", primary: slow(), hedge: delivers(ms), client: second,
			want: []uint32{1, 1}, at: 11 * ms, sent: 2},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest("/*/BidiStream"), hedge.WithMaxHedges(1))
			cluster := testserver.StartT(t,
				testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.primary, tc.hedge)})
			var closed [2]atomic.Int64
			attempts := 0
			client := dial(t, cluster, s, inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
				st, err := open()
				attempts++
				return closing{st, &closed[attempts-1]}, err
			}))
			ctx, cancel := context.WithCancel(t.Context())
			st, err := client.BidiStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			send := func() {
				if err := st.Send(&testpb.Request{Id: 1}); err != nil && err != io.EOF {
					t.Error(err)
				}
			}
			if send(); tc.client == closes {
				st.CloseSend()
			}
			var sender sync.WaitGroup
			sender.Go(func() {
				time.Sleep(12 * ms)
				if tc.client == second {
					send()
				}
				if tc.client != 0 {
					st.CloseSend()
				}
			})
			got, err := answers(st, 1)
			took := time.Since(began)
			if err == nil && tc.client != 0 { // otherwise it ends with its context
				var more []uint32
				more, err = answers(st, -1)
				got = append(got, more...)
			}
			if !slices.Equal(got, tc.want) || status.Code(err) != tc.err || took != tc.at ||
				len(cluster.Records()) != tc.sent {
				t.Errorf("%v, %v after %v from %d streams, want %v after %v from %d", got, err, took, len(cluster.Records()),
					tc.want, tc.at, tc.sent)
			}
			sender.Wait()
			most := map[int]int64{0: 0, closes: 2, second: 1, late: 1}[tc.client]
			for n := range closed {
				if got := closed[n].Load(); got > most {
					t.Errorf("attempt %d was closed %d times, by a client that closed its side %d times", n, got, most)
				}
			}
			if n := s.Stats().SecondRequest; (n == 1) != (tc.client == second) {
				t.Errorf("%d second requests", n)
			}
			cancel()
			synctest.Wait()
			if n := cluster.Counts().InFlight; n != 0 {
				t.Errorf("%d streams are still running", n)
			}
		})
	}
}

// TestSingleRequest_Often: a method with callers that send a second message is not hedged, until
// they no longer do.
func TestSingleRequest_Often(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest("/*/BidiStream"), hedge.WithMaxHedges(1))
		_, client := inMemory(t, s, delivers(20*ms), delivers(20*ms))
		for _, step := range []struct{ streams, requests, hedged int64 }{{50, 1, 50}, {20, 2, 4}, {150, 1, 38}} {
			before := s.Stats()
			for range step.streams {
				ctx, cancel := context.WithCancel(t.Context())
				st, err := client.BidiStream(ctx)
				for range step.requests {
					err = errors.Join(err, st.Send(&testpb.Request{Id: 1}))
					_, answer := answers(st, 1)
					err = errors.Join(err, answer)
				}
				if cancel(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			after := s.Stats()
			if after.Hedged-before.Hedged != step.hedged ||
				after.NotReplayable-before.NotReplayable != step.streams-step.hedged ||
				after.SecondRequest-before.SecondRequest != step.streams*(step.requests-1) {
				t.Errorf("%d streams of %d requests: %+v, before %+v", step.streams, step.requests, after, before)
			}
		}
	})
}

// TestSingleRequest_SecondBesideHeader is for the race detector: RecvMsg does not use the stream,
// or its first message, while the race of Header does, although a second request has chosen the
// primary.
func TestSingleRequest_SecondBesideHeader(t *testing.T) {
	for name, opts := range map[string][]hedge.Option{
		"headers": nil, "first message": {hedge.WithWaitForMessage("/*/BidiStream")},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			opts := append(opts, hedge.WithSingleRequest("/*/BidiStream"))
			_, client := inMemory(t, hedgetest.Fixed(t, 10*ms, opts...), delivers(30*ms))
			st, err := client.BidiStream(t.Context())
			err = errors.Join(err, st.Send(&testpb.Request{Id: 1}))
			var header sync.WaitGroup
			header.Go(func() { _, _ = st.Header() })
			synctest.Wait()
			err = errors.Join(err, st.Send(&testpb.Request{Id: 1}), st.CloseSend())
			got, answer := answers(st, -1)
			if err = errors.Join(err, answer); err != nil || len(got) != 2 {
				t.Errorf("answers of the attempts %v, %v; want two", got, err)
			}
			header.Wait()
		})
	}
}

// TestSingleRequest_TheClockStartsWithTheRequest opens streams 20 ms before their request.
func TestSingleRequest_TheClockStartsWithTheRequest(t *testing.T) {
	const opened, bidiMethod = 20 * ms, testpb.TestService_BidiStream_FullMethodName
	for _, tc := range []struct {
		name    string
		primary testserver.Plan
		hedges  int           // allowed
		reader  bool          // Recv waits before the request is sent
		header  bool          // Header waits before that
		want    []uint32      // the attempt that answers
		at      time.Duration // after the request
		learned time.Duration
	}{
		{name: "a hedge is due a delay after the request", primary: slow(), hedges: 1, want: []uint32{1}, at: 15 * ms},
		{name: "the same, with a reader that waits", primary: slow(), hedges: 1, reader: true, want: []uint32{1},
			at: 15 * ms},
		{name: "a fast answer needs no hedge", primary: delivers(5 * ms), hedges: 1, want: []uint32{0}, at: 5 * ms,
			learned: 5 * ms},
		{name: "the same, with a reader that waits", primary: delivers(5 * ms), hedges: 1, reader: true,
			want: []uint32{0}, at: 5 * ms, learned: 5 * ms},
		{name: "unhedged streams learn from the request", primary: delivers(5 * ms), want: []uint32{0}, at: 5 * ms,
			learned: 5 * ms},
		{name: "the same, with a reader that waits", primary: delivers(5 * ms), reader: true, want: []uint32{0},
			at: 5 * ms, learned: 5 * ms},
		{name: "Header waits, too", primary: testserver.Plan{Delay: 5 * ms, HeaderAtOnce: true}, hedges: 1, reader: true,
			header: true, want: []uint32{0}, at: 5 * ms, learned: 5 * ms},
		{name: "a hedge is due while Header waits", primary: slow(), hedges: 1, reader: true, header: true,
			want: []uint32{1}, at: 15 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest("/*/BidiStream"), hedge.WithMaxHedges(tc.hedges))
			cluster, client := inMemory(t, s, tc.primary, delivers(5*ms))
			for range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				st, err := client.BidiStream(ctx)
				if err != nil {
					t.Fatal(err)
				}
				sent, send := time.Now().Add(opened), func() { _ = st.Send(&testpb.Request{Id: 1}) }
				if tc.reader {
					time.AfterFunc(opened, send)
				} else {
					time.Sleep(opened)
					send()
				}
				if tc.header {
					_, _ = st.Header()
				}
				got, err := answers(st, 1)
				if at := time.Since(sent); err != nil || !slices.Equal(got, tc.want) || at != tc.at {
					t.Fatalf("the answer is from %v, %v, %v after the request; want one from %v after %v", got, err, at,
						tc.want, tc.at)
				}
				cancel()
				synctest.Wait()
			}
			got, ok := s.Latency(cluster.Target(), bidiMethod, 0.5)
			if ok != (tc.learned > 0) || !within(got, tc.learned, 0.01) {
				t.Errorf("learned %v, want %v", got, tc.learned)
			}
		})
	}
}

// sending is the stream of a hedge that has sent its request when hold is closed. It counts the trailers
// that are asked for before the stream has ended, which gRPC forbids.
type sending struct {
	grpc.ClientStream
	hold  chan struct{}
	ended atomic.Bool
	early *atomic.Int64
}

func (s *sending) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	<-s.hold
	return err
}

func (s *sending) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.ended.Store(true)
	}
	return err
}

func (s *sending) Trailer() metadata.MD {
	if !s.ended.Load() {
		s.early.Add(1)
	}
	return s.ClientStream.Trailer()
}

// TestSingleRequest_SecondAsAHedgeSends has a hedge lose because of a second request while it sends the
// first one: its stream goes on, so its trailer is not asked for.
func TestSingleRequest_SecondAsAHedgeSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t,
			testserver.Config{InMemory: true, Script: testserver.ByNumber(delivers(30*ms), slow())})
		hold, attempts := make(chan struct{}), 0
		var early atomic.Int64
		s := hedgetest.Fixed(t, 10*ms, hedge.WithSingleRequest("/*/BidiStream"), hedge.WithMaxHedges(1))
		client := dial(t, cluster, s, inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
			st, err := open()
			if attempts++; attempts == 1 {
				return st, err
			}
			return &sending{ClientStream: st, hold: hold, early: &early}, err
		}))
		st, err := client.BidiStream(t.Context())
		err = errors.Join(err, st.Send(&testpb.Request{Id: 1}))
		var reader sync.WaitGroup
		var got []uint32
		reader.Go(func() { got, _ = answers(st, -1) })
		time.Sleep(15 * ms)
		err = errors.Join(err, st.Send(&testpb.Request{Id: 1}), st.CloseSend())
		close(hold)
		reader.Wait()
		if err != nil || !slices.Equal(got, []uint32{0, 0}) || attempts != 2 || early.Load() > 0 {
			t.Errorf("answers of %v, %d attempts, error %v; %d trailers of a stream that had not ended",
				got, attempts, err, early.Load())
		}
	})
}
