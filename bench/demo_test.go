package main

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	testpb "github.com/grpchedge/hedge/proto"
)

func TestDemo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.png")
	var stdout, stderr bytes.Buffer
	args := []string{"demo", "-calls", "400", "-concurrency", "20", "-law", "straggler:10%,8", "-hedges", "1", "-budget", "20", "-picture", path}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	for _, line := range []string{
		`p50 +[\d.]+ ms +[\d.]+ ms +\d\.\d{3}`,
		`p90 +[\d.]+ ms`, `p95 +[\d.]+ ms`, `p99 +[\d.]+ ms`, `p99\.9 +[\d.]+ ms`,
		`extra load, at the server +0\.0% +\d+\.\d%`,
		`hedges sent +[1-9]\d*`, `  and won +\d+`,
		`cancelled at the server +0 +\d+`,
		`learned delay +[\d.]+ ms`,
		`wrong replies +0 +0`, `failed calls +0 +0`,
	} {
		if !regexp.MustCompile(`(?m)^ ` + line).MatchString(stdout.String()) {
			t.Errorf("no line like %q in\n%s", line, &stdout)
		}
	}
	if !strings.Contains(stdout.String(), path) {
		t.Errorf("the path of the picture is not told:\n%s", &stdout)
	}
	if strings.ContainsAny(stdout.String()+stderr.String(), "\r\x1b") {
		t.Errorf("control characters in an output that is no terminal:\n%q\n%q", &stdout, &stderr)
	}

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	picture, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	size := picture.Bounds().Size()
	colors := map[any]bool{}
	for x := range size.X {
		for y := range size.Y {
			colors[picture.At(x, y)] = true
		}
	}
	if size.X < 1000 || size.Y < 600 || len(colors) < 50 {
		t.Errorf("the picture is %v with %d colors", size, len(colors))
	}
}

// TestDemoSmall runs the least that can be asked for: one call, on one backend, at which nothing is learned.
func TestDemoSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.svg")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), strings.Fields("demo -calls 1 -backends 1 -law constant:0s -picture "+path), &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	if !strings.Contains(stdout.String(), "still learning") {
		t.Errorf("one call taught a delay:\n%s", &stdout)
	}
	picture, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"latency (ms, log scale)", "percentile of calls", "without hedging", "with hedging, "} {
		if !bytes.Contains(picture, []byte(text)) {
			t.Errorf("the picture does not say %q", text)
		}
	}
}

func TestDemoWithoutPicture(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"demo", "-calls", "20", "-picture", ""}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("wrote %v (%v)", files, err)
	}
}

// TestDemoFails checks that one wrong reply among many right ones is told, with its seed, and fails the run.
func TestDemoFails(t *testing.T) {
	shown := scenes
	t.Cleanup(func() { scenes = shown })
	scenes = []scene{{"calls", workload{law: "constant:0s", call: func(ctx context.Context, client testpb.TestServiceClient, id uint64) (time.Duration, error) {
		took, err := unary(ctx, client, id)
		if id == callID(7) {
			err = wrongReply{errors.New("odd")}
		}
		return took, err
	}}}}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"demo", "-calls", "20", "-seed", "9", "-picture", ""}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "none: 0 failed calls, 1 wrong replies; the first: call 7 with seed 9: odd") {
		t.Errorf("exit code %d, standard error %q", code, &stderr)
	}
	if !regexp.MustCompile(`wrong replies +1 +1`).MatchString(stdout.String()) {
		t.Errorf("no wrong reply in\n%s", &stdout)
	}
}
