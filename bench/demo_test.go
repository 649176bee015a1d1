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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func TestDemo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.png")
	var stdout, stderr bytes.Buffer
	args := []string{"demo", "-calls", "400", "-streams", "300", "-concurrency", "20", "-law", "straggler:10%,8", "-hedges", "1", "-budget", "20", "-picture", path}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	scenes := strings.SplitAfter(stdout.String(), "\n\n300 token streams of 4 messages, ")
	if len(scenes) != 2 {
		t.Fatalf("not two scenes:\n%s", &stdout)
	}
	for i, lines := range [][]string{{`failed calls +0 +0`}, {`failed streams +0 +0`}} {
		checkScene(t, scenes[i], lines)
	}
	for _, text := range []string{`law "ttft", seed 1.`, "(budget 30%, then the flags)", "time to first message",
		"\nAll 2,400 tokens arrived intact and in order, those of each stream from one attempt.\n"} {
		if !strings.Contains(scenes[1], text) || strings.Contains(scenes[0], text) {
			t.Errorf("%q is not in the second scene alone:\n%s", text, &stdout)
		}
	}
	if !strings.Contains(stdout.String(), path) {
		t.Errorf("the path of the picture is not told:\n%s", &stdout)
	}
	if strings.ContainsAny(stdout.String()+stderr.String(), "\r\x1b") {
		t.Errorf("control characters in an output that is no terminal:\n%q\n%q", &stdout, &stderr)
	}
	checkPicture(t, path)
}

// checkScene checks that a scene's table has the lines that all have, and some of its own.
func checkScene(t *testing.T, scene string, lines []string) {
	t.Helper()
	for _, line := range append(lines,
		`p50 +[\d.]+ ms +[\d.]+ ms +\d\.\d{3}`,
		`p90 +[\d.]+ ms`, `p95 +[\d.]+ ms`, `p99 +[\d.]+ ms`, `p99\.9 +[\d.]+ ms`,
		`extra load, at the server +0\.0% +\d+\.\d%`,
		`hedges sent +[1-9]\d*`, `  and won +\d+`,
		`cancelled at the server +0 +\d+`,
		`learned delay +[\d.]+ ms`,
		`wrong replies +0 +0`,
	) {
		if !regexp.MustCompile(`(?m)^ ` + line).MatchString(scene) {
			t.Errorf("no line like %q in\n%s", line, scene)
		}
	}
}

// checkPicture checks that there is a picture of two panels.
func checkPicture(t *testing.T, path string) {
	t.Helper()
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
	if size.X < 1000 || size.Y < 1200 || len(colors) < 50 {
		t.Errorf("the picture is %v with %d colors", size, len(colors))
	}
}

// TestDemoSmall runs the least that can be asked for of both scenes: one call and one stream, on one backend, at which nothing is learned.
func TestDemoSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo.svg")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), strings.Fields("demo -calls 1 -streams 1 -backends 1 -law constant:0s -picture "+path), &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	if !strings.Contains(stdout.String(), "still learning") {
		t.Errorf("one call taught a delay:\n%s", &stdout)
	}
	picture, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"latency (ms, log scale)", "percentile of calls", "time to first message (ms, log scale)", "percentile of streams", "without hedging", "with hedging, "} {
		if !bytes.Contains(picture, []byte(text)) {
			t.Errorf("the picture does not say %q", text)
		}
	}
}

// TestDemoWithoutPicture runs one scene alone and draws nothing.
func TestDemoWithoutPicture(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"demo", "-calls", "20", "-streams", "0", "-picture", ""}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) > 0 {
		t.Errorf("wrote %v (%v)", files, err)
	}
	if strings.Contains(stdout.String(), "stream") {
		t.Errorf("-streams 0 shows streams:\n%s", &stdout)
	}
}

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
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"demo", "-calls", "20", "-seed", "9", "-picture", ""}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "none: 0 failed calls, 1 wrong replies; the first: call 7 with seed 9: odd") {
		t.Errorf("exit code %d, standard error %q", code, &stderr)
	}
	if !regexp.MustCompile(`wrong replies +1 +1`).MatchString(stdout.String()) {
		t.Errorf("no wrong reply in\n%s", &stdout)
	}
}

// TestTokensChecked checks that a stream that is not whole is told from one that failed.
func TestTokensChecked(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plan  testserver.Plan
		wrong bool
		err   string
	}{
		{"whole", testserver.Plan{}, false, ""},
		{"short", testserver.Plan{Messages: 3}, true, "stream 1: 3 messages, want 4"},
		{"long", testserver.Plan{Messages: 5}, true, "stream 1: 5 messages, want 4"},
		{"empty", testserver.Plan{Empty: true}, true, "stream 1: 0 messages, want 4"},
		{"other payload", testserver.Plan{PayloadBytes: 9}, true, "payload of 9 bytes"},
		{"failed", testserver.Plan{After: 2, Code: codes.DataLoss}, false, "DataLoss"},
	} {
		cluster := testserver.StartT(t, testserver.Config{Script: func(testserver.Attempt) testserver.Plan { return tc.plan }})
		client, err := connect(t.Context(), cluster, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = tokens(t.Context(), client, 1)
		if got := errors.As(err, new(wrongReply)); got != tc.wrong || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, a wrong reply: %v; want %q, %v", tc.name, err, got, tc.err, tc.wrong)
		}
	}
}

// TestTokensOfTwoAttempts checks that a stream is wrong if each message is right and they are not of one attempt.
func TestTokensOfTwoAttempts(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	conn, err := cluster.Client(grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		primary, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, err
		}
		hedge, err := streamer(metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", "1"), desc, cc, method, opts...)
		return &mixedStream{ClientStream: primary, hedge: hedge}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = tokens(t.Context(), testpb.NewTestServiceClient(conn), 1)
	if want := "stream 1: message 2 is of attempt 1, those before of 0"; !errors.As(err, new(wrongReply)) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// mixedStream is one attempt up to its second message and another from then on.
type mixedStream struct {
	grpc.ClientStream
	hedge    grpc.ClientStream
	received int
}

func (s *mixedStream) SendMsg(m any) error {
	return errors.Join(s.ClientStream.SendMsg(m), s.hedge.SendMsg(m))
}

func (s *mixedStream) CloseSend() error {
	return errors.Join(s.ClientStream.CloseSend(), s.hedge.CloseSend())
}

func (s *mixedStream) RecvMsg(m any) error {
	s.received++
	err := s.hedge.RecvMsg(m)
	if s.received <= 2 {
		err = s.ClientStream.RecvMsg(m)
	}
	return err
}
