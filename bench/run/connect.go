package run

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// Connect returns a client that is connected, so that no call waits for a connection.
func Connect(ctx context.Context, cluster *testserver.Cluster, dial []grpc.DialOption) (testpb.TestServiceClient,
	error) {
	conn, err := connect(ctx, cluster, dial)
	return testpb.NewTestServiceClient(conn), err
}

func connect(ctx context.Context, cluster *testserver.Cluster, dial []grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := cluster.Client(dial...)
	if err != nil {
		return nil, err
	}
	return conn, ready(ctx, conn)
}

// ConnectTo returns a connection to a server of another process, when it is ready.
func ConnectTo(ctx context.Context, target string, dial []grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(target,
		append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, dial...)...)
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func ready(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("no connection: %w", ctx.Err())
		}
	}
}
