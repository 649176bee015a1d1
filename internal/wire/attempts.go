package wire

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// PreviousAttempts returns which attempt of a hedged call a server's handler serves: 0 for the primary, n for
// hedge n. ctx is the handler's context. It returns 0 if the metadata has no such number or an invalid one.
func PreviousAttempts(ctx context.Context) int {
	values := metadata.ValueFromIncomingContext(ctx, AttemptsHeader)
	if len(values) == 0 {
		return 0
	}
	// The last value is that of the client's own attempt. A proxy may have passed on an earlier value.
	n, err := strconv.Atoi(values[len(values)-1])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// ForHedge reports whether a call that is made under ctx is made on behalf of a hedge: by the handler of a server that serves one,
// or within one of this process.
func ForHedge(ctx context.Context) bool {
	return ctx.Value(hedgeKey{}) != nil || PreviousAttempts(ctx) > 0
}
