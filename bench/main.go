// Command bench shows the effects and costs of hedging, on real gRPC calls over loopback sockets
// and in virtual time.
//
//	go run . demo    # the same calls without and with hedging
//	go run . compare # any workloads under any policies, a peer's among them: tables and pictures
//	go run . report  # all of them at full size, and an index
//	go run . tail    # the tail at several concurrencies, against the library's promise
//	go run . cost    # the processor time of calls that need no hedge, as a ratio to plain ones
//	go run . busy    # servers and a client that are short of processor time, in processes of their own
//
// Every reply is checked, the servers count the attempts, and policies that are compared run
// interleaved, so that all figures are ratios within one run. The exit code is 1 if a reply was
// wrong, a call failed or a promise was missed, and 2 if a flag is wrong.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program with args and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var usage bytes.Buffer // package flag prints it on every error, which would bury the error
	root := &ffcli.Command{
		Name:        "bench",
		ShortUsage:  "bench <subcommand> [flags]",
		Subcommands: commands(stdout, stderr),
		FlagSet:     flag.NewFlagSet("bench", flag.ContinueOnError),
		Exec: func(_ context.Context, args []string) error {
			if len(args) > 0 {
				return misuse{fmt.Errorf("there is no subcommand %q", args[0])}
			}
			return flag.ErrHelp
		},
	}
	root.FlagSet.SetOutput(&usage)
	for _, c := range root.Subcommands {
		c.FlagSet.SetOutput(&usage)
	}

	err := root.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the library's "error parsing commandline arguments"
		}
		err = misuse{err}
	}
	if err == nil {
		err = root.Run(ctx)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage.String())
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "bench: interrupted")
		return 1
	case errors.As(err, new(misuse)):
		fmt.Fprintf(stderr, "bench: %v\nAdd -h to see what there is.\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "bench: %v\n", err)
	return 1
}

// misuse is a mistake in the command line.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }
