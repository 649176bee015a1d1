package wire

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// PreviousAttempts returns which attempt of a hedged call a server's handler serves: 0 for the primary, n for
// hedge n. ctx is the handler's context. A call whose metadata does not say, or says nonsense, is a primary.
func PreviousAttempts(ctx context.Context) int {
	values := metadata.ValueFromIncomingContext(ctx, AttemptsHeader)
	if len(values) == 0 {
		return 0
	}
	// The last value is the closest attempt's: a proxy may have passed an earlier one on.
	n, err := strconv.Atoi(values[len(values)-1])
	if err != nil || n < 0 {
		return 0
	}
	return n
}
