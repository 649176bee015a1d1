package compat_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// attempt is a call as an interceptor inside sees it, unary or a stream.
type attempt struct {
	ctx        context.Context
	opts       []grpc.CallOption
	req, reply any // nil for a stream
	send       func(a attempt) (grpc.ClientStream, error)
}

func (a attempt) next() (grpc.ClientStream, error) { return a.send(a) }

// inner chains an interceptor inside for both kinds of calls.
func inner(f func(a attempt) (grpc.ClientStream, error)) chain {
	return chain{
		inside: unaries(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			_, err := f(attempt{ctx, opts, req, reply, func(a attempt) (grpc.ClientStream, error) {
				return nil, invoker(a.ctx, method, a.req, a.reply, cc, a.opts...)
			}})
			return err
		}),
		insideStream: streams(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return f(attempt{ctx, opts, nil, nil, func(a attempt) (grpc.ClientStream, error) {
				return streamer(a.ctx, desc, cc, method, a.opts...)
			}})
		}),
	}
}

// adding is an interceptor that appends options.
func adding(opts ...grpc.CallOption) chain {
	return inner(func(a attempt) (grpc.ClientStream, error) {
		a.opts = append(a.opts, opts...)
		return a.next()
	})
}

// tag is the option of an interceptor.
type tag struct {
	grpc.EmptyCallOption
	name string
}

// filter moves tags to the metadata, in place.
func filter(a attempt) (grpc.ClientStream, error) {
	left := a.opts[:0]
	for _, opt := range a.opts {
		if t, ok := opt.(tag); ok {
			a.ctx = metadata.AppendToOutgoingContext(a.ctx, "tag", t.name)
		} else {
			left = append(left, opt)
		}
	}
	clear(a.opts[len(left):])
	a.opts = left
	return a.next()
}

// inject copies the outgoing metadata and adds to the copy, as tracing interceptors do.
func inject(a attempt) (grpc.ClientStream, error) {
	md, _ := metadata.FromOutgoingContext(a.ctx)
	md = md.Copy()
	md.Set("traceparent", "00-1-1-01")
	a.ctx = metadata.NewOutgoingContext(a.ctx, md)
	return a.next()
}

// mirror makes each call twice at once, and uses the first. A second stream that ended before the
// caller waits would end the call for hedging.
func mirror(a attempt) (grpc.ClientStream, error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(a.ctx, "mirror", "1"), 12*ms)
	context.AfterFunc(a.ctx, cancel)
	second := attempt{ctx: ctx, opts: a.opts, req: a.req, send: a.send}
	if a.reply != nil { // the options of a unary hedge include these
		second.reply = proto.Clone(a.reply.(proto.Message))
		second.opts = slices.DeleteFunc(slices.Clone(a.opts), func(opt grpc.CallOption) bool {
			_, trailer := opt.(grpc.TrailerCallOption)
			_, peer := opt.(grpc.PeerCallOption)
			return trailer || peer
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = second.next()
	}()
	st, err := a.next()
	<-done
	return st, err
}

// elsewhere makes the call on another goroutine, and waits for it.
func elsewhere(a attempt) (st grpc.ClientStream, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		st, err = a.next()
	}()
	<-done
	return st, err
}

// swap receives into a message of its own.
func swap(a attempt) (grpc.ClientStream, error) {
	if a.reply == nil {
		return a.next()
	}
	own, callers := new(testpb.Reply), a.reply.(*testpb.Reply)
	a.reply = own
	_, err := a.next()
	proto.Reset(callers)
	proto.Merge(callers, own)
	return nil, err
}

// without drops the caller's options: a mirror would write twice at once into their variables.
func without(a attempt) (grpc.ClientStream, error) {
	a.opts = nil
	return a.next()
}

// around has one interceptor outside and another inside.
func around(outside, inside chain) chain {
	return chain{outside: outside.inside, inside: inside.inside, outsideStream: outside.insideStream,
		insideStream: inside.insideStream}
}

func both(c chain) chain { return around(c, c) }

// TestInside plays scenes of interceptors, options and contexts of other libraries by plain gRPC and
// hedged. The caller and the server see the same in both, all parts of an outcome are of one attempt,
// and a hedge can win wherever the call leaves the client.
func TestInside(t *testing.T) {
	for name, sc := range map[string]struct {
		chain   chain
		opts    []grpc.CallOption
		request *testpb.Request
	}{
		"nothing else": {},
		"all on both sides": {chain: around(
			chain{inside: unaries(timeoutUnary, logUnary, retryUnary), insideStream: streams(logStream, retryStream)},
			chain{inside: unaries(retryUnary, logUnary, timeoutUnary), insideStream: streams(retryStream, logStream)})},
		"retryPolicy": {chain: chain{dial: []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}}},
		"credentials of the connection": {
			chain: chain{dial: []grpc.DialOption{grpc.WithPerRPCCredentials(token{})}}},
		"stats.Handler": {chain: chain{dial: []grpc.DialOption{grpc.WithStatsHandler(nothing{})},
			server: []grpc.ServerOption{grpc.StatsHandler(nothing{})}}},
		"a codec of the call": {opts: []grpc.CallOption{grpc.CallContentSubtype("json")}},
		"large messages": {chain: chain{server: []grpc.ServerOption{grpc.MaxRecvMsgSize(16 << 20)}},
			opts:    []grpc.CallOption{grpc.MaxCallRecvMsgSize(16 << 20)},
			request: &testpb.Request{Id: 7, Messages: 3, ReplyBytes: 5 << 20, Payload: make([]byte, 1000<<10)}},
		"filters in place":     {chain: inner(filter), opts: []grpc.CallOption{tag{name: "a"}, grpc.WaitForReady(true)}},
		"filters, many":        {chain: inner(filter), opts: slices.Repeat([]grpc.CallOption{tag{name: "a"}}, 20)},
		"filters twice":        {chain: both(inner(filter)), opts: []grpc.CallOption{tag{name: "a"}, tag{name: "b"}}},
		"tracing":              {chain: both(inner(inject))},
		"logging that appends": {chain: adding(grpc.OnFinish(func(error) {}), grpc.WaitForReady(true))},
		"retry of the call": {chain: chain{inside: unaries(retryUnary), insideStream: streams(retryStream)},
			opts: []grpc.CallOption{retries[0], retries[1]}},
		"a mirror":                {chain: around(inner(without), inner(mirror))},
		"another goroutine":       {chain: inner(elsewhere)},
		"swaps the reply":         {chain: inner(swap)},
		"adds credentials":        {chain: adding(grpc.PerRPCCredentials(token{}))},
		"adds a compressor":       {chain: adding(grpc.UseCompressor(gzip.Name))},
		"adds sizes":              {chain: adding(grpc.MaxCallRecvMsgSize(1<<20), grpc.MaxCallSendMsgSize(1<<20))},
		"replies beyond the size": {opts: []grpc.CallOption{grpc.MaxCallRecvMsgSize(10)}},
		"static method":           {opts: []grpc.CallOption{grpc.StaticMethod(), grpc.WaitForReady(true)}},
		"OnFinish inside":         {chain: adding(grpc.OnFinish(func(error) {}))},
		"embedded empty options":  {opts: []grpc.CallOption{&struct{ tag }{}, struct{ *tag }{&tag{}}}},
		"adds a codec":            {chain: adding(grpc.ForceCodec(jsonCodec{}))},
	} {
		for _, first := range []bool{false, true} { // Header
			for kind, call := range kinds {
				for _, plans := range [][]testserver.Plan{{{Delay: 5 * ms}}, {{Delay: 15 * ms}, {Delay: 15 * ms}},
					{{Delay: 30 * ms}, {Delay: 5 * ms}}, {{Delay: 30 * ms}, {Delay: 5 * ms, Code: codes.Internal}},
					{{Delay: 15 * ms, Code: codes.Internal}, {Delay: 30 * ms, Code: codes.Internal}}} {
					if first && kind == "unary" {
						continue
					}
					hedgetest.Run(t, fmt.Sprintf("%s/%s %v/%+v", name, kind, first, plans), func(t *testing.T) {
						var seen [2]string
						var got [2]outcome
						for i := range got {
							w := start(t, sc.chain, func(a testserver.Attempt) testserver.Plan {
								p := says(a, plans[min(a.Number, len(plans)-1)])
								if p.Code != codes.OK { // headers would decide
									p.Header = nil
								}
								return p
							})
							if i == 0 {
								w.plain(t, sc.chain)
							}
							if first {
								w.client = headerFirst{w.client}
							}
							ctx := metadata.AppendToOutgoingContext(t.Context(), "caller", "1")
							got[i] = call(w, ctx, cmp.Or(sc.request, request()), slices.Clone(sc.opts)...)
							synctest.Wait()
							all := map[string]bool{}
							for _, r := range w.RecordsOf(7) {
								md := r.Metadata.Copy()
								for _, mark := range []string{"grpc-previous-rpc-attempts", "hedge-primary-in-flight", ":authority"} {
									delete(md, mark)
								}
								all[fmt.Sprint(md)] = true
							}
							seen[i] = fmt.Sprint(slices.Sorted(maps.Keys(all)))
							if want := len(plans) - 1; i == 1 && w.scheduler.Stats().Hedges != int64(want) {
								t.Errorf("%d hedges, want %d: %+v", w.scheduler.Stats().Hedges, want, w.scheduler.Stats())
							}
						}
						if h := got[1]; h.err == nil && h.header != nil {
							if of := fmt.Sprint(h.reply.Attempt); h.header.Get("attempt")[0] != of || h.trailer.Get("attempt")[0] != of {
								t.Errorf("the reply is of attempt %s, with the header %v and the trailer %v", of, h.header, h.trailer)
							}
						}
						if seen[0] != seen[1] {
							t.Errorf("the server saw %s, by plain gRPC %s", seen[1], seen[0])
						}
						if p, h := got[0], got[1]; status.Code(p.err) != status.Code(h.err) ||
							p.reply.GetSequence() != h.reply.GetSequence() || len(p.reply.GetPayload()) != len(h.reply.GetPayload()) ||
							len(p.finished) != len(h.finished) ||
							(p.header == nil) != (h.header == nil) || (p.peer.Addr == nil) != (h.peer.Addr == nil) {
							t.Errorf("plain %+v, hedged %+v", p, h)
						}
					})
				}
			}
		}
	}
}

// plain replaces the client of a world by one that does not hedge.
func (w *world) plain(t *testing.T, c chain) {
	conn := w.ClientT(t, append(c.dial, grpc.WithChainUnaryInterceptor(slices.Concat(c.outside, c.inside)...),
		grpc.WithChainStreamInterceptor(slices.Concat(c.outsideStream, c.insideStream)...))...)
	testserver.ConnectT(t, conn)
	w.client = testpb.NewTestServiceClient(conn)
}

// headerFirst asks for the headers of each stream first.
type headerFirst struct{ testpb.TestServiceClient }

func (h headerFirst) ServerStream(ctx context.Context, req *testpb.Request, opts ...grpc.CallOption,
) (grpc.ServerStreamingClient[testpb.Reply], error) {
	st, err := h.TestServiceClient.ServerStream(ctx, req, opts...)
	if err == nil {
		_, err = st.Header()
	}
	return st, err
}
