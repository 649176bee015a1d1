package compat_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/proto/inferencepb"
)

type (
	inferRequest = inferencepb.ModelInferRequest
	inferServer  = grpc.BidiStreamingServer[inferRequest, inferencepb.ModelStreamInferResponse]
	inferStream  = grpc.BidiStreamingClient[inferRequest, inferencepb.ModelStreamInferResponse]
)

const modelStreamInfer = inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName

// triton answers each request of a stream with three tokens. The first request's are late.
type triton struct {
	late    func(id, attempt string) time.Duration
	running atomic.Int64
}

func (s *triton) ModelStreamInfer(st inferServer) error {
	s.running.Add(1)
	defer s.running.Add(-1)
	md, _ := metadata.FromIncomingContext(st.Context())
	attempt := strings.Join(md.Get("grpc-previous-rpc-attempts"), "")
	for n := 0; ; n++ {
		req, err := st.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if n == 0 {
			select {
			case <-time.After(s.late(req.GetId(), attempt)):
			case <-st.Context().Done():
				return st.Context().Err()
			}
		}
		for token := range 3 {
			answer := &inferencepb.ModelInferResponse{ModelName: attempt, Id: fmt.Sprint(req.GetId(), " ", token)}
			if err := st.Send(&inferencepb.ModelStreamInferResponse{InferResponse: answer}); err != nil {
				return err
			}
		}
	}
}

// client returns a client of the server, in memory.
func (s *triton) client(t *testing.T, scheduler *hedge.Scheduler) inferencepb.GRPCInferenceServiceClient {
	return inferencepb.NewGRPCInferenceServiceClient(testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
		return s.ModelStreamInfer(
			&grpc.GenericServerStream[inferRequest, inferencepb.ModelStreamInferResponse]{ServerStream: st})
	}, hedgetest.Interceptors(scheduler)...))
}

// tokens receives the tokens of a request. They must be complete, in order, and of one attempt.
func tokens(st inferStream, id string, of *string) error {
	for token := range 3 {
		res, err := st.Recv()
		if err != nil {
			return err
		}
		answer := res.GetInferResponse()
		if *of == "?" {
			*of = answer.GetModelName()
		}
		if want := fmt.Sprint(id, " ", token); answer.GetId() != want || answer.GetModelName() != *of {
			return fmt.Errorf("token %q of attempt %q, want %q of %q", answer.GetId(), answer.GetModelName(), want, *of)
		}
	}
	return nil
}

// TestTriton streams 5,000 prompts, 20 at a time, by the method of Triton and KServe, with the
// latencies of the workload ttft.
func TestTriton(t *testing.T) {
	longtest.Simulation(t)
	latency := testserver.DistributionT(t, "ttft")
	late := func(id, attempt string) time.Duration {
		var seed [32]byte
		copy(seed[:], id+"/"+attempt)
		return latency.Draw(rand.New(rand.NewChaCha8(seed)))
	}
	var plain time.Duration
	for _, tc := range []struct {
		name string
		opts []hedge.Option // nil: plain
		most float64        // of plain's p99
	}{
		{"plain", nil, 1},
		{"nothing configured", []hedge.Option{}, 1},
		{"budget 30%, three hedges", []hedge.Option{hedge.WithBudgetPercent(30), hedge.WithMaxHedges(3)}, 0.33},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			var s *hedge.Scheduler
			if tc.opts != nil {
				s = hedgetest.New(t, append(tc.opts, hedge.WithReadOnlyMethods(modelStreamInfer),
					hedge.WithSingleRequest(modelStreamInfer))...)
			}
			client := (&triton{late: late}).client(t, s)
			p99 := hedgetest.P99(t, 5000, 20, func(n int) error {
				id, of := fmt.Sprint(n), "?"
				st, err := client.ModelStreamInfer(t.Context())
				if err == nil {
					err = st.Send(&inferRequest{Id: id})
				}
				if err == nil {
					err = st.CloseSend()
				}
				if err == nil {
					err = tokens(st, id, &of)
				}
				return err
			})
			c := s.Stats()
			if plain == 0 {
				plain = p99
			}
			ratio := float64(p99) / float64(plain)
			t.Logf("p99 %v, %.2f of plain, extra %.1f%%", p99, ratio, 100*c.HedgeRate())
			if ratio > tc.most {
				t.Errorf("p99 is %.2f of plain, want at most %.2f", ratio, tc.most)
			}
		})
	}
}

// TestRule01_SecondRequests has many streams at once that send a second request, or close their
// side, while the first answer, a hedge and its win are due. Each answer comes once, in order and
// of one attempt.
func TestRule01_SecondRequests(t *testing.T) {
	server := &triton{late: func(id, attempt string) time.Duration {
		return time.Duration(rand.IntN(2000)) * time.Microsecond
	}}
	s := hedgetest.Fixed(t, time.Millisecond, hedge.WithMinDelay(0), hedge.WithSingleRequest(modelStreamInfer))
	client := server.client(t, s)
	hedgetest.P99(t, longtest.Size(600, 20_000), 16, func(n int) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		id := fmt.Sprint(n)
		st, err := client.ModelStreamInfer(ctx)
		if err != nil {
			return err
		}
		if err := st.Send(&inferRequest{Id: id}); err != nil {
			return err
		}
		second := n%16 == 0 // rarely enough for hedges
		sent := make(chan error, 1)
		go func() {
			<-time.After(time.Duration(rand.IntN(2500)) * time.Microsecond)
			var err error
			if second {
				err = st.Send(&inferRequest{Id: id + "'"})
			}
			if n%3 > 0 {
				st.CloseSend()
			}
			sent <- err
		}()
		of := "?"
		err = tokens(st, id, &of)
		if err == nil && second {
			err = tokens(st, id+"'", &of)
		}
		if e := <-sent; err == nil && n%3 > 0 {
			if _, err = st.Recv(); err == io.EOF {
				err = e
			}
		}
		return err
	})
	if c := s.Stats(); c.HedgeWins == 0 || c.SecondRequest == 0 {
		t.Errorf("%+v, want hedges that win, and second requests", c)
	}
	for server.running.Load() > 0 { // an abandoned stream would run until the test's timeout
		runtime.Gosched()
	}
}
