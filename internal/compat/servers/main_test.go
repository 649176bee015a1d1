package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServers_PrintsTheTable runs the command against what needs nothing but Go, by real sockets, and asks for a server
// that is not installed.
func TestServers_PrintsTheTable(t *testing.T) {
	var table bytes.Buffer
	args := []string{"-for", "500ms", "-callers", "2,4", "-budget", "10", "-only", "grpc-go,grpc-js", "-install=false", "-folder", t.TempDir()}
	if err := program(t.Context(), args, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| grpc-go \| \d+\.\d+\.\d+ \| [24] \| 0 of [1-9]\d+ \| 1 \| 10% \| 0 of [1-9]\d+ \| 1 \| \d\.\d\d \| \d+ \| 0 \|$`)
	if got := rows.FindAllString(table.String(), -1); len(got) != 2 {
		t.Errorf("%d rows of a server without a limit, want 2:\n%s", len(got), &table)
	}
	if want := "\nLeft out: grpc-js: not installed, and -install=false\n"; !strings.HasSuffix(table.String(), want) {
		t.Errorf("the table does not end with %q:\n%s", want, &table)
	}
}

func TestServers_BadFlags(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"-for 1ms", "-for 1ms, allowed 100ms to 1h"},
		{"-callers 0", "allowed 1 to 10000"},
		{"-callers x", "invalid"},
		{"-budget 0", "allowed above 0 to 400"},
		{"-budget NaN", "allowed above 0 to 400"},
		{"here", `unexpected argument "here"`},
	} {
		err := program(t.Context(), strings.Fields(tc.args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.want)
		}
	}
}

func TestResult_P99(t *testing.T) {
	var r Result
	if r.P99() != 0 {
		t.Errorf("p99 of nothing is %v", r.P99())
	}
	for n := range 200 {
		r.Latencies = append(r.Latencies, time.Duration(n+1))
	}
	if r.P99() != 198 {
		t.Errorf("p99 of 1 to 200 is %d, want 198", r.P99())
	}
}
