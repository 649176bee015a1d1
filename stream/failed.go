package stream

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// failedStream stands for a stream that could not be opened. RecvMsg returns the error, as it does for a stream that fails
// right after it was opened.
type failedStream struct {
	ctx context.Context
	err error
}

func (f failedStream) Header() (metadata.MD, error) { return nil, nil }
func (f failedStream) Trailer() metadata.MD         { return nil }
func (f failedStream) CloseSend() error             { return nil }
func (f failedStream) Context() context.Context     { return f.ctx }
func (f failedStream) SendMsg(any) error            { return nil }
func (f failedStream) RecvMsg(any) error            { return f.err }
