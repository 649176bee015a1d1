package testserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// patience bounds what a test waits for that should be there in a moment.
const patience = 10 * time.Second

// ConnectT waits until a connection is ready, as it must be before a call on it is hedged.
func ConnectT(tb TB, conn *grpc.ClientConn) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for conn.Connect(); ; {
		state := conn.GetState()
		if state == connectivity.Ready {
			return
		}
		if !conn.WaitForStateChange(ctx, state) {
			tb.Fatalf("not connected: %v", state)
		}
	}
}

// WaitIdleT is [Cluster.WaitIdle] for a test, which fails if attempts are left.
func (c *Cluster) WaitIdleT(tb TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.WaitIdle(ctx); err != nil {
		tb.Fatalf("attempts are left at the server: %v", err)
	}
}

// ByNumber is a script that goes by the number of the attempt.
func ByNumber(plans ...Plan) Script {
	return func(a Attempt) Plan { return plans[a.Number] }
}
