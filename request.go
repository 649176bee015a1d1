package hedge

import (
	"context"
	"math/bits"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// WithClass learns latencies, and hedges, for each class of requests of a method: a tenant, a priority, the length of a prompt.
// of returns the class of a request. Once a request of the method has a class, the others are of the class "(other)". [BySize] is
// such a function. Use it where the request decides how long a call takes.
//
// A method has at most 16 classes. All further ones are of the class "(other)" as well. A name is cut off at 64 bytes. A class with too
// few calls uses what is known of the method. All classes share the target's budget. A class that is not called for 15 minutes makes
// room for another one. What is learned of a class stays after a [Scheduler.Update], by whatever function names it.
//
// of runs on the caller's goroutine, once for each call of a unary method and once for the request of a server stream, so its
// time is added to every call. It must be safe for concurrent use, and must not change the request. Its panic is a panic of the
// call. For [Do] the request is nil. Nil, the default, means no classes.
func WithClass(of func(ctx context.Context, method string, request any) string) Option {
	return option("WithClass", nil, func(c *settings.Config) { c.Class = of })
}

// BySize is a function for [WithClass]. The class of a protobuf request is its size on the wire, in powers of four.
// Other requests have no class.
func BySize(_ context.Context, _ string, request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	return sizes[min((bits.Len(uint(proto.Size(m)))+1)/2, len(sizes)-1)]
}

// sizes are the names of the classes of BySize: class n has the sizes below 4ⁿ.
var sizes = func() (names [registry.MaxClasses]string) {
	for n := range names {
		names[n] = "<" + strconv.Itoa(1<<(2*n)) + "B"
	}
	return names
}()

// WithCost says how much a hedge of a request costs, in calls; the default is 1. The budget is then a share of the cost of all
// calls: each call adds its share of its own cost, and each hedge takes the cost of its call. A cost above 10,000 counts as
// 10,000. A cost that is not finite, or is less than 0, counts as 1, and in stats.Counts.InvalidCosts.
//
// Choose the unit so that a usual call costs about 1. The bucket then holds what the calls of two seconds earn, and at least
// the price of the costliest call of the last 30 to 60 seconds.
//
// of runs on the caller's goroutine, once for each call that can be hedged, under the conditions of [WithClass]. For [Do] the
// request is nil. Nil, the default, means that each call costs 1.
func WithCost(of func(ctx context.Context, method string, request any) float64) Option {
	return option("WithCost", nil, func(c *settings.Config) { c.Cost = of })
}

// WithAcceptable says which answers are acceptable as the end of a call. It is for replicas that lag behind and for servers that
// degrade. acceptable is called when an attempt has ended. It returns false if another attempt may give a better answer. Such an
// answer is a rejected answer. Nil, the default, accepts every answer.
//
// After a rejected answer the next hedge is due at once, and is sent if the budget and the rest of rule 10 in docs/rules.md allow
// it. The call waits for it and for the attempts in flight. The caller gets the first accepted answer. If none comes, the caller
// gets the first rejected reply, or, without one, the first rejected status. No failure replaces a rejected reply, not even the end
// of the caller's context. stats.Counts.Rejected counts rejected answers, and stats.Outcome.Rejected tells the caller of one.
//
// acceptable is asked about a reply, with err nil: the value of [Do], and the first message of a server stream. It is asked
// about a server stream that ended without a message, with reply nil and err [io.EOF], and about a status that would end the
// race, with reply nil: see [WithNonFatalCodes]. It is not asked about:
//
//   - other failures.
//   - streams whose response headers decide the race: those with a hedgingPolicy, and those whose caller calls Header first (see
//     [WithWaitForMessage]).
//   - the primary's first message of a stream whose caller calls Header while RecvMsg waits.
//   - calls that could have no hedge: while their method is being learned, while hedging is paused or off, in a dry run, without
//     hedges or budget, in the control group, and if their method may not run twice.
//
// acceptable must be safe for concurrent use. It runs on the goroutine of the attempt, also for attempts that turn out to have
// lost, and its time is added to every call. ctx is the caller's context. acceptable must not change the reply, and must not keep
// it. Its panic is a panic of the attempt.
func WithAcceptable(acceptable func(ctx context.Context, method string, reply any, err error) bool) Option {
	return option("WithAcceptable", nil, func(c *settings.Config) { c.Acceptable = acceptable })
}
