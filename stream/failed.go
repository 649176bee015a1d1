package stream

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// failed is a stream that could not be opened. As with one that fails right after, the caller hears of it from
// RecvMsg.
type failed struct {
	ctx context.Context
	err error
}

func (f failed) Header() (metadata.MD, error) { return nil, nil }
func (f failed) Trailer() metadata.MD         { return nil }
func (f failed) CloseSend() error             { return nil }
func (f failed) Context() context.Context     { return f.ctx }
func (f failed) SendMsg(any) error            { return nil }
func (f failed) RecvMsg(any) error            { return f.err }
