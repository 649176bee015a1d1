package main

import (
	"bytes"
	"io"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(portVariable); port != "" { // a process of prepareGo
		log.Fatal(serveHello(port))
	}
	goleak.VerifyTestMain(m)
}

// TestServers_PrintsTheTable runs the command against what needs nothing but Go, by real sockets
// and processes, the second time with a backend that is stopped, and asks for a server that is not
// installed.
func TestServers_PrintsTheTable(t *testing.T) {
	for _, tc := range []struct {
		args string
		rows []string // after the version
	}{
		{"-for 500ms -callers 2,4", []string{
			`2 \| plain \| 0 of [1-9]\d+ \| 0 \| 0 \| [\d.]+ \| 1.00 \| 1 \| 0 `,
			`2 \| 10% \| 0 of [1-9]\d+ \| 0 \| 0 \| [\d.]+ \| [\d.]+ \| 1 \| \d+ `,
			`4 \| plain \| 0 of [1-9]\d+ \| 0 \| 0 \| [\d.]+ \| 1.00 \| 1 \| 0 `,
			`4 \| 10% \| 0 of [1-9]\d+ \| 0 \| 0 \| [\d.]+ \| [\d.]+ \| 1 \| \d+ `}},
		{"-for 2s -callers 200 -rate 100 -stops -connections 2", []string{
			`200 \| plain \| 0 of (?:1\d|[1-9])\d \| 0 \| 0 \| \d{3,}\.\d \| 1.00 \| 3 \| 0 `,
			`200 \| 10%, policy, 2 connections \| 0 of (?:1\d|[1-9])\d \| 0 \| 0 \| [\d.]+ \| [\d.]+ \| 6 \| [1-9]\d* `}},
	} {
		var table bytes.Buffer
		args := strings.Fields(tc.args + " -budget 10 -only grpc-go,grpc-js -install=false -folder " + t.TempDir())
		if err := program(t.Context(), args, &table, io.Discard); err != nil {
			t.Fatal(err)
		}
		want := `^` + regexp.QuoteMeta(header)
		for _, row := range tc.rows {
			want += `\| grpc-go \| \d+\.\d+\.\d+ \| ` + row + `\| 0 \| +\| +\|\n`
		}
		if want += "\nLeft out: grpc-js: not installed, and -install=false\n$"; !regexp.MustCompile(want).Match(
			table.Bytes()) {
			t.Errorf("%s: the table is not of the form %s:\n%s", tc.args, want, &table)
		}
	}
}
