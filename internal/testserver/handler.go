package testserver

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	testpb "github.com/grpchedge/hedge/proto"
)

// previousAttempts is the metadata key with the number of a hedge.
const previousAttempts = "grpc-previous-rpc-attempts"

// A handler is one attempt while it runs.
type handler struct {
	ctx     context.Context
	backend *backend
	attempt Attempt
	script  Script
	record  *Record // nil where the cluster only counts
	through bool    // the plan was carried out to its ending
}

// begin counts an attempt as in flight. The caller must call end.
func begin(ctx context.Context, b *backend, method string) *handler {
	c := b.cluster
	c.idle.enter()
	c.counters.inFlight.Add(1)
	c.counters.attempts.Add(1)
	h := &handler{ctx: ctx, backend: b, attempt: Attempt{
		Method:  method,
		Backend: b.index,
		Arrival: time.Now(),
		source:  c.source,
	}}
	if values := metadata.ValueFromIncomingContext(ctx, previousAttempts); len(values) > 0 {
		c.counters.hedges.Add(1)
		// A proxy that forwards incoming metadata appends its own value.
		h.attempt.Number, _ = strconv.Atoi(values[len(values)-1])
	}
	if script := c.script.Load(); script != nil {
		h.script = *script
	}
	if h.script != nil || !c.config.CountsOnly {
		h.attempt.Metadata, _ = metadata.FromIncomingContext(ctx)
	}
	if !c.config.CountsOnly {
		h.record = &Record{Attempt: h.attempt}
		c.records.add(h.record)
	}
	return h
}

// plan decides what happens to the attempt, now that its first request is here.
func (h *handler) plan(req *testpb.Request) Plan {
	c := h.backend.cluster
	h.attempt.ID = req.GetId()
	if h.record != nil {
		c.records.update(func() { h.record.ID = h.attempt.ID })
	}
	if c.config.DrawByID {
		h.attempt.source = c.source.forAttempt(h.attempt.ID, h.attempt.Number)
	}
	switch {
	case h.script != nil:
		return h.script(h.attempt)
	case c.config.Latency != nil:
		return Plan{Delay: h.attempt.Draw(c.config.Latency)}
	}
	return Plan{}
}

// play carries out a plan with the given number of messages, and returns the
// status for gRPC, or the error that stopped it.
func (h *handler) play(p *Plan, messages int, send func(seq int) error) error {
	if p.GoAway {
		h.backend.drain()
	}
	if err := h.setMetadata(p); err != nil {
		return err
	}
	if err := contextStatus(h.backend.queue.serve(h.ctx, p.Delay, h.backend.cluster.config.Wait)); err != nil {
		return err
	}
	if !p.HeaderAtOnce && len(p.Header) > 0 { // an attempt whose deadline passes before has no headers
		if err := grpc.SetHeader(h.ctx, p.Header); err != nil {
			return err
		}
	}
	if p.abnormal() {
		messages = min(messages, max(p.After, 0))
	}
	for seq := range messages {
		if err := h.pause(p, seq); err != nil {
			return err
		}
		if err := send(seq); err != nil {
			return err
		}
		h.sent()
	}
	if p.abnormal() { // in the place of the next message
		if err := h.pause(p, messages); err != nil {
			return err
		}
	}
	return h.finish(p)
}

// pause waits for the time between the seq-th message of a stream and the one
// before it.
func (h *handler) pause(p *Plan, seq int) error {
	if seq == 0 {
		return nil
	}
	return contextStatus(h.backend.cluster.config.Wait(h.ctx, p.Interval))
}

// contextStatus returns what gRPC is to make of a context's error, nil included.
func contextStatus(err error) error { return status.FromContextError(err).Err() }

func (h *handler) setMetadata(p *Plan) error {
	if len(p.Trailer) > 0 {
		if err := grpc.SetTrailer(h.ctx, p.Trailer); err != nil {
			return err
		}
	}
	if p.HeaderAtOnce {
		return grpc.SendHeader(h.ctx, p.Header)
	}
	return nil
}

func (h *handler) finish(p *Plan) error {
	switch p.Ending {
	case Hang:
		<-h.ctx.Done()
		return contextStatus(h.ctx.Err())
	case CloseConn:
		h.through = true
		closeConn(h.ctx)
		return status.Error(codes.Unavailable, "testserver: connection closed by plan")
	}
	h.through = true
	return status.Error(p.Code, p.Message) // nil for OK
}

// reply is the seq-th reply of the attempt to req.
func (h *handler) reply(p *Plan, req *testpb.Request, seq int) *testpb.Reply {
	r := &testpb.Reply{
		Id:       req.GetId(),
		Sequence: uint32(seq),
		Backend:  uint32(h.attempt.Backend),
		Attempt:  uint32(h.attempt.Number),
	}
	r.Payload = payload(r.Id, r.Sequence, r.Backend, r.Attempt, p.payloadBytes(req))
	return r
}

func (h *handler) sent() {
	if h.record != nil {
		h.backend.cluster.records.update(func() { h.record.Sent = append(h.record.Sent, time.Now()) })
	}
}

// end counts the attempt out.
func (h *handler) end(err error) {
	b := h.backend
	cancelled := err != nil && !h.through && errors.Is(h.ctx.Err(), context.Canceled)
	switch {
	case cancelled:
		b.cluster.counters.cancelled.Add(1)
	case err != nil:
		b.cluster.counters.failed.Add(1)
	}
	if h.record != nil {
		now := time.Now()
		b.cluster.records.update(func() {
			h.record.Ended, h.record.Code = now, status.Code(err)
			if cancelled {
				h.record.Cancelled = now
			}
		})
	}
	b.cluster.counters.inFlight.Add(-1)
	b.cluster.idle.leave()
}
