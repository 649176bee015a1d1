package hedge

import (
	"context"

	"github.com/grpchedge/hedge/internal/engine"
)

// WithAnswer says which answers are good enough to end a call. It is for replicas that lag behind and for servers that
// degrade: where one backend answers with an empty result, a partial one or a NOT_FOUND, another one may have more. good is
// called when an attempt has ended. It returns false if the call should not end with this answer as long as another attempt
// may give a better one. Such an answer is a poor answer. Nil, the default, accepts every answer.
//
// After a poor answer the race goes on. The next hedge is due at once, and is sent if the budget and the rest of rule 10 in
// docs/rules.md allow it. The call waits for it and for the attempts in flight. The caller gets the first good answer. If
// none comes, the caller gets the first poor reply. If no attempt had a reply, the caller gets the first poor status. No
// failure replaces a poor reply: neither a status of another attempt, nor the end of the caller's context. A poor status is
// replaced only by an answer.
//
// good is asked about:
//   - a reply, with err nil. For [Do] that is the value, and for a server stream the first message.
//   - a server stream that ended without a message, with reply nil and err [io.EOF].
//   - a status that would end the race, with reply nil: see [WithNonFatalCodes].
//
// It is not asked about:
//   - other failures.
//   - streams whose response headers decide the race: those with a hedgingPolicy, and those whose caller calls Header first
//     (see stream.WaitForMessage).
//   - the primary's first message of a stream whose caller calls Header while RecvMsg waits.
//   - calls that could have no hedge: while their method is being learned, while hedging is paused or off, in a dry run,
//     without hedges or budget, in the control group, and if their method may not run twice.
//
// good must be safe for concurrent use. It runs on the goroutine of the attempt, also for attempts that turn out to have
// lost. What it takes to return is added to every call. ctx is the caller's context. good must not change the reply, and
// must not keep it. A panic in good is a panic of the attempt.
//
// The budget is the same as for other hedges. If it does not pay for a hedge, the caller gets the poor reply.
// stats.Counts.PoorAnswers counts poor answers, and stats.Outcome.Poor tells the caller of one.
func WithAnswer(good func(ctx context.Context, method string, reply any, err error) bool) Option {
	return named("WithAnswer", func(c *engine.Config) error {
		c.Answer = good
		return nil
	})
}
