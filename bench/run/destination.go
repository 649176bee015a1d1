package run

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
)

// dial returns the dial options of the policy, and starts the second destination if there is one.
func (a *arm) dial(ctx context.Context) (dial []grpc.DialOption, err error) {
	if a.Workload.Second {
		if a.second, err = a.startCluster("second", a.targets[0], 1); err != nil {
			return nil, err
		}
		other, err := connect(ctx, a.second, nil)
		if err != nil {
			return nil, err
		}
		if a.policy.To != nil {
			dial, a.scheduler, err = a.policy.To(other, a.Options)
			return dial, err
		}
	}
	dial, a.scheduler, err = a.policy.Dial(a.Options)
	return dial, err
}

// startCluster starts the backends of a destination of t.
func (a *arm) startCluster(name string, t *target, destination int) (*testserver.Cluster, error) {
	wait := waitExactly
	if a.Clock == workload.VirtualClock {
		wait = nil
	}
	return testserver.Start(testserver.Config{
		Wait:           wait,
		Name:           name,
		Backends:       a.Backends,
		InMemory:       a.Clock == workload.VirtualClock,
		Workers:        a.Workload.Workers,
		StopsCancelled: a.Workload.Fleet != nil && a.Workload.Fleet.StopsCancelled,
		Script:         a.script(t, destination),
		Seed:           a.Seed,
		DrawByID:       true,
		CountsOnly:     !a.KeepRecords,
	})
}

// clusters are the destinations that were started.
func (a *arm) clusters() (all []*testserver.Cluster) {
	for _, t := range a.targets {
		all = append(all, t.cluster)
	}
	return slices.DeleteFunc(append(all, a.second), func(c *testserver.Cluster) bool { return c == nil })
}
