package interceptor_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// hedging is a service config in which the stub's method, /test.Service/Method, has this policy.
func hedging(policy string, more ...string) string {
	return `{"methodConfig": [{"name": [{"service": "test.Service", "method": "Method"}], "hedgingPolicy": ` +
		policy + `}]` + strings.Join(more, "") + `}`
}

const (
	// policies of four attempts or two, 10 ms apart, for which UNAVAILABLE, or INTERNAL too, is non-fatal
	four = `{"maxAttempts": 4, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
	both = `{"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE", "INTERNAL"]}`
	two  = `{"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
)

// TestGRPCDefinition has rows for the sentences about clients in gRPC's definition of hedging: when
// each attempt is sent, and when and how the call ends. The tests of internal/rpc have those about
// names and values in a service config; those of internal/race have all orders of events.
func TestGRPCDefinition(t *testing.T) {
	const unavailable, internal = codes.Unavailable, codes.Internal
	broken := step{after: ms, code: unavailable, broken: true}
	playScenes(t, []scene{
		// Service config.
		{name: "maxAttempts includes the original", config: hedging(two),
			steps: []step{answers(90 * ms), silent()}, sent: times(0, 10), at: 90 * ms},
		{name: "hedgingDelay absent means 0: all attempts at once", config: hedging(`{"maxAttempts": 5}`),
			steps: []step{silent(), silent(), answers(5 * ms), silent(), silent()}, sent: times(0, 0, 0, 0, 0), at: 5 * ms,
			winner: 2},
		{name: "nonFatalStatusCodes absent: every error is fatal",
			config: hedging(`{"maxAttempts": 4, "hedgingDelay": "0.01s"}`),
			steps:  []step{silent(), fails(5*ms, unavailable)}, sent: times(0, 10), at: 15 * ms, code: unavailable, winner: 1},

		// Behaviour.
		{name: "the original goes out at once, each hedge hedgingDelay after the one before", config: hedging(four),
			steps: []step{answers(90 * ms), silent(), silent(), silent()}, sent: times(0, 10, 20, 30), at: 90 * ms},
		{name: "the first OK wins", config: hedging(four),
			steps: []step{silent(), silent(), answers(3 * ms)}, sent: times(0, 10, 20), at: 23 * ms, winner: 2},
		{name: "a fatal status ends the race with that error", config: hedging(four),
			steps: []step{silent(), fails(3*ms, internal)}, sent: times(0, 10), at: 13 * ms, code: internal, winner: 1},
		{name: "an answer such as NOT_FOUND is fatal unless it is named", config: hedging(four),
			steps: []step{silent(), fails(3*ms, codes.NotFound)}, sent: times(0, 10), at: 13 * ms, code: codes.NotFound,
			winner: 1},
		{name: "even NOT_FOUND may be named",
			config: hedging(`{"maxAttempts": 2, "hedgingDelay": "1s", "nonFatalStatusCodes": ["NOT_FOUND"]}`),
			steps:  []step{fails(3*ms, codes.NotFound), answers(2 * ms)}, sent: times(0, 3), at: 5 * ms, winner: 1},
		{name: "a non-fatal status sends the next hedge immediately", config: hedging(four),
			steps: []step{silent(), fails(2*ms, unavailable), answers(1 * ms)}, sent: times(0, 10, 12), at: 13 * ms, winner: 2},
		{name: "also that of the original, before any hedge", config: hedging(four),
			steps: []step{fails(2*ms, unavailable), answers(1 * ms)}, sent: times(0, 2), at: 3 * ms, winner: 1},
		{name: "when all have failed the last failure is the call's",
			config: hedging(both),
			steps:  []step{fails(2*ms, unavailable), fails(3*ms, internal)}, sent: times(0, 2), at: 5 * ms, code: internal,
			winner: 1},
		{name: "a stream that cannot be opened is an attempt that fails", config: hedging(four),
			steps: []step{broken, broken, answers(ms)}, sent: times(0, 1, 2), at: 3 * ms, winner: 2},
		{name: "no stream can be opened", config: hedging(two), doors: doors[1:],
			steps: []step{broken, broken}, sent: times(0, 1), at: 2 * ms, code: unavailable, winner: 1},
		{name: "throttled, the original is always sent",
			config: hedging(two, `, "retryThrottling": {"maxTokens": 1, "tokenRatio": 0.001}`),
			steps:  []step{fails(2*ms, unavailable)}, sent: times(0), at: 2 * ms, code: unavailable},

		// Pushback.
		{name: "a pushback of n ms delays the next hedge by n ms from now", config: hedging(four),
			steps: []step{fails(2*ms, unavailable, "30"), answers(1 * ms)}, sent: times(0, 32), at: 33 * ms, winner: 1},
		{name: "a pushback of 0 sends it at once", config: hedging(four),
			steps: []step{fails(2*ms, unavailable, "0"), answers(1 * ms)}, sent: times(0, 2), at: 3 * ms, winner: 1},
		{name: "a negative pushback: no more hedges for this call", config: hedging(four),
			steps: []step{answers(80 * ms), fails(2*ms, unavailable, "-1")}, sent: times(0, 10), at: 80 * ms},
		{name: "an unparsable pushback: no more hedges", config: hedging(four),
			steps: []step{fails(2*ms, unavailable, "soon")}, sent: times(0), at: 2 * ms, code: unavailable},
	})
}
