package hedge

import (
	"context"

	"github.com/grpchedge/hedge/internal/engine"
)

// WithAnswer says which answers are good enough to end a call's race. It is for replicas that lag behind and for servers that
// degrade: an empty result, a partial one, or a NOT_FOUND, of which another backend may have a better one. good is called with
// the end of an attempt, and returns false if the call should not end with it while another attempt may do better. Such an end
// is a poor answer.
//
// After a poor answer the race goes on. The next hedge is due at once, if the budget and everything else allows it (see rule
// 10 in docs/rules.md), and the call waits for the attempts in flight. The first good answer is what the caller gets. If none
// comes, the caller gets the first poor reply, or, without a poor reply, the first poor status, as without this option. Once
// there is a poor reply, no failure replaces it: neither a status, nor the end of the caller's deadline. A poor status is
// replaced by an answer alone.
//
// good is asked about a reply, with err nil, and about a status that would end the race, with reply nil: see
// [WithNonFatalCodes]. Of a server stream it is asked about the first message. For a stream that ends without a message, reply
// is nil and err is [io.EOF]. It is not asked about other failures, nor about streams whose response headers decide the race:
// those with a hedgingPolicy, and those whose caller calls Header first (see stream.WaitForMessage). Of a stream whose caller
// calls Header while RecvMsg waits, the primary's first message is delivered as it is, unless it was judged before. Nor is
// good asked about calls that could have no hedge: while the method is learned, paused or off, in a dry run, with no hedges
// or no budget, of the control group, and of methods that may not run twice. For [Do] reply is the value.
//
// good must be safe for concurrent use. It runs on the goroutine of the attempt, also for attempts that turn out to have lost,
// and what it takes to return is added to every call. ctx is the caller's context. good must not change the reply, nor keep it after it
// has returned. A panic in it is like a panic in the attempt.
//
// Hedges of poor answers are paid from the same budget as all others: if more answers are poor than the budget pays hedges
// for, the others are delivered as they are. Stats.PoorAnswers counts poor answers, and Outcome.Poor tells the caller of one.
// Nil, the default, accepts every answer.
func WithAnswer(good func(ctx context.Context, method string, reply any, err error) bool) Option {
	return named("WithAnswer", func(c *engine.Config) error {
		c.Answer = good
		return nil
	})
}
