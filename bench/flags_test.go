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
		"demo -calls 0":                       `invalid value "0" for flag -calls: must be 1 to 10000000`,
		"demo -distribution lunar":            `invalid value "lunar" for flag -distribution: unknown distribution "lunar"`,
		"demo -budget much":                   `invalid value "much" for flag -budget: not a number`,
		"demo -hedges 5":                      `invalid value "5" for flag -hedges: hedge: WithMaxHedges(5)`,
		"demo -seed -1":                       `invalid value "-1" for flag -seed: must be 0 to`,
		"demo -picture a.gif":                 `invalid value "a.gif" for flag -picture: must end in .png or .svg`,
		"demo -picture main.go/a.png":         `invalid value "main.go/a.png" for flag -picture: main.go is not a directory`,
		"tail -concurrency 1,0":               `invalid value "1,0" for flag -concurrency: "0": must be 1 to 10000`,
		"cost -duration 1":                    `invalid value "1" for flag -duration: not a time`,
		"compare -workload stragler":          `invalid value "stragler" for flag -workload: there is no "stragler", only`,
		"compare -clock sun":                  `invalid value "sun" for flag -clock: there is no "sun", only real`,
		"compare -workload shift -clock real": `the workload shift does not run with -clock real`,
		"compare -out main.go":                `invalid value "main.go" for flag -out: not a folder`,
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

// TestHelp checks that help goes to standard output.
func TestHelp(t *testing.T) {
	for _, args := range []string{"", "-h", "demo -h", "compare -h", "report -h", "tail -h", "cost -h", "busy -h"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 0 || stderr.Len() > 0 ||
			stdout.Len() == 0 {
			t.Errorf("bench %s: exit code %d, standard error %q, standard output %q", args, code, &stderr, &stdout)
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
