package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestMisuse checks that each mistake is found before anything runs, and that the error names flag
// and value.
func TestMisuse(t *testing.T) {
	for args, want := range map[string]string{
		"dmo":                                 `no subcommand "dmo"`,
		"demo now":                            `unexpected argument "now"`,
		"demo -distribution lunar":            `invalid value "lunar" for flag -distribution: unknown distribution "lunar"`,
		"demo -hedges 5":                      `invalid value "5" for flag -hedges: hedge: WithMaxHedges(5)`,
		"demo -picture a.gif":                 `invalid value "a.gif" for flag -picture: must end in .png or .svg`,
		"compare -workload stragler":          `invalid value "stragler" for flag -workload: there is no "stragler", only`,
		"compare -workload shift -clock real": `the workload shift does not run with -clock real`,
		"report -short=perhaps":               `invalid boolean value "perhaps" for -short`,
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("bench %s: exit code %d, standard error %q, standard output %q; want 2, %q, nothing", args,
				code, &stderr, &stdout, want)
		}
	}
}

// TestMissedPromiseExitsWith1 makes one call without and with hedging, three times. It cannot become
// faster, but by a stall of the machine, so tail reports a missed promise.
func TestMissedPromiseExitsWith1(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), strings.Fields("tail -calls 1 -concurrency 1,1,1"), &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "bench: concurrency 1: the ratio of p99 is ") {
		t.Errorf("exit code %d, standard error %q", code, &stderr)
	}
}
