package main

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	testpb "github.com/grpchedge/hedge/proto"
)

// TestDemoFails checks that one wrong reply among many right ones is told, with its seed, and fails the run.
func TestDemoFails(t *testing.T) {
	shown := scenes
	t.Cleanup(func() { scenes = shown })
	scenes = []scene{{title: "calls", noun: "calls", workload: workload{law: "constant:0s", call: func(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
		took, attempt, err := unary(ctx, client, id)
		if id == callID(7) {
			err = wrongReply{errors.New("odd")}
		}
		return took, attempt, err
	}}}}
	var stdout, log bytes.Buffer
	d := demo{calls: 20, concurrency: 20, backends: 3, seed: 9, law: "constant:0s"}
	const want = "none: 0 failed calls, 1 wrong replies; the first: call 7 with seed 9: odd"
	if err := d.run(t.Context(), &stdout, &log); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
	if !regexp.MustCompile(`wrong replies +1 +1`).MatchString(stdout.String()) {
		t.Errorf("no wrong reply in\n%s", &stdout)
	}
}
