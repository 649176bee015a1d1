package stream

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/call"
)

// watched is a stream that is not hedged, but learned from.
type watched struct {
	grpc.ClientStream
	learning
	method string
	types  *messageTypes
	heard  bool // RecvMsg has returned the first message, or the end of the stream; used by RecvMsg only
}

// watch opens a stream that is not hedged, and learns from it.
func watch(ctx context.Context, c *call.Call, types *messageTypes, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	st, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		c.End(call.End{Err: err})
		return nil, err
	}
	if !c.Learns && !c.TracksFailures() {
		return st, nil
	}
	w := &watched{ClientStream: st, method: method, types: types}
	w.learnFrom(c)
	return w, nil
}

func (w *watched) SendMsg(m any) error {
	w.inspect(m)
	return w.ClientStream.SendMsg(m)
}

func (w *watched) RecvMsg(m any) error {
	if w.heard {
		return w.ClientStream.RecvMsg(m)
	}
	askedAt := w.call.Age()
	w.begin()
	w.types.remember(w.method, m)
	err := w.ClientStream.RecvMsg(m)
	w.heard = true
	w.endWith(w.ClientStream, askedAt, err, false)
	return err
}

func (w *watched) Header() (metadata.MD, error) {
	askedAt := w.call.Age()
	_, waits := w.types.reply(w.method, nil)
	w.begin()
	header, err := w.ClientStream.Header()
	if !waits || header == nil { // these headers, or this end, would have decided a race
		w.headersCame(askedAt, header)
	}
	return header, err
}
