package testserver

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	testpb "github.com/grpchedge/hedge/proto"
)

// An Attempt is one call or stream as it reached a backend. A hedged call makes
// several of them.
type Attempt struct {
	Method   string      // full method, such as "/hedgetest.TestService/Unary"
	ID       uint64      // of the request; of the first one where requests are streamed
	Number   int         // grpc-previous-rpc-attempts: 0 for the primary
	Backend  int         // index of the backend in its cluster
	Arrival  time.Time   // when the handler started
	Metadata metadata.MD // as received; nil where a cluster only counts and has no script

	source *source
}

// Draw draws a latency for the attempt from a distribution, with the randomness that
// [Config] set up. It is for scripts, and may be called more than once.
func (a Attempt) Draw(distribution Distribution) time.Duration { return a.source.draw(distribution) }

// A Script decides how an attempt is answered. It is called when the first request has arrived,
// concurrently, and must not block: to wait, return a [Plan].
type Script func(Attempt) Plan

// A Plan is what happens to one attempt. The zero Plan answers at once: with one
// reply, or with as many messages as the request to a server stream asks for.
//
// In whatever it waits for, an attempt stops the moment its context ends.
type Plan struct {
	// Delay is the time before the reply, the first message or the status.
	Delay time.Duration

	// Header and Trailer are sent to the client. The headers go out with the
	// first message, or at once, empty ones too, if HeaderAtOnce is set.
	Header       metadata.MD
	HeaderAtOnce bool
	Trailer      metadata.MD

	// Interval is the time between two messages of a stream.
	Interval time.Duration

	// Messages, if above 0, is the number of messages of a server stream,
	// whatever its request asks for. Empty ends the stream without any.
	Messages int
	Empty    bool

	// PayloadBytes, if above 0, is the size of the payload in each reply,
	// whatever the request asks for. Large ones fill the flow-control window.
	PayloadBytes int

	// Ending is how the attempt ends; Code and Message are the status with which
	// Finish ends it. Anything but Finish with OK takes the place of the unary
	// reply, or of the message that would follow the first After ones of a stream.
	Ending  Ending
	After   int
	Code    codes.Code
	Message string

	// GoAway sends GOAWAY on every connection of the attempt's backend as the
	// attempt starts. It and all others there run to their end, then the backend
	// is gone, as after [Cluster.Drain].
	GoAway bool
}

// Ending is how an attempt ends.
type Ending int

const (
	Finish    Ending = iota // with the status of the plan
	Hang                    // never: it waits until its context ends
	CloseConn               // with its connection closed under it, without a word in HTTP/2
)

// abnormal reports whether the plan ends otherwise than with a full answer.
func (p *Plan) abnormal() bool { return p.Ending != Finish || p.Code != codes.OK }

// payloadBytes returns the size of the payload in a reply to req.
func (p *Plan) payloadBytes(req *testpb.Request) int {
	if p.PayloadBytes > 0 {
		return p.PayloadBytes
	}
	return int(req.GetReplyBytes())
}

// messages returns the length of a server stream that answers req.
func (p *Plan) messages(req *testpb.Request) int {
	switch {
	case p.Empty:
		return 0
	case p.Messages > 0:
		return p.Messages
	}
	return int(req.GetMessages())
}
