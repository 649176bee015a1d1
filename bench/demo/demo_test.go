package demo

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/workload"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestDemoFails checks that one wrong reply among many right ones is reported with its seed and
// fails the run.
func TestDemoFails(t *testing.T) {
	shown := scenes
	t.Cleanup(func() { scenes = shown })
	scenes = []scene{{title: "calls", noun: "calls", workload: workload.Workload{Distribution: "constant:0s",
		Call: func(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
			took, attempt, err := workload.Named("straggler").Call(ctx, client, id)
			if id == workload.CallID(7) {
				err = workload.WrongReply{Err: errors.New("odd")}
			}
			return took, attempt, err
		}}}}
	var stdout, log bytes.Buffer
	d := Demo{Calls: 20, Concurrency: 20, Backends: 3, Seed: 9, Distribution: "constant:0s"}
	const want = "none: 0 failed calls, 1 wrong replies; the first: call 7 with seed 9: odd"
	if err := d.Run(t.Context(), &stdout, &log); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
	if !regexp.MustCompile(`wrong replies +1 +1`).MatchString(stdout.String()) {
		t.Errorf("no wrong reply in\n%s", &stdout)
	}
}
