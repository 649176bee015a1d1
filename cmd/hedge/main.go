// Command hedge answers questions about hedging from measured latencies.
//
//	hedge whatif FILE # predicts the effect of hedging on calls with these latencies
//
// The exit code is 2 if a flag or the input is wrong, and 1 if anything else is.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/grpchedge/hedge/bench/picture"
	"github.com/grpchedge/hedge/cmd/hedge/whatif"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs the program with args and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, w, stderr io.Writer) int {
	stdout := bufio.NewWriter(w) // keeps the first error
	code := runBuffered(ctx, args, stdin, stdout, stderr)
	if err := stdout.Flush(); err != nil && code == 0 {
		fmt.Fprintf(stderr, "hedge: writing the answer: %v\n", err)
		return 1
	}
	return code
}

func runBuffered(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var usage bytes.Buffer // package flag prints it on every error, which would bury the error
	root := &ffcli.Command{
		Name:        "hedge",
		ShortUsage:  "hedge <subcommand> [flags]",
		Subcommands: []*ffcli.Command{whatifCommand(stdin, stdout, stderr)},
		FlagSet:     flag.NewFlagSet("hedge", flag.ContinueOnError),
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
	case errors.As(err, new(misuse)):
		fmt.Fprintf(stderr, "hedge: %v\nAdd -h to see what there is.\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "hedge: %v\n", err)
	if errors.As(err, new(*whatif.InputError)) {
		return 2
	}
	return 1
}

func whatifCommand(stdin io.Reader, w, log io.Writer) *ffcli.Command {
	var q whatif.Question
	fs := flag.NewFlagSet("whatif", flag.ContinueOnError)
	fs.Var(&q.Format, "format", "`format` of the file: lines, csv or prometheus (default: found by its first line)")
	fs.StringVar(&q.Field, "field", "",
		"`name` of what has the latencies: the column of a CSV file, or the Prometheus histogram")
	fs.StringVar(&q.By, "by", "",
		"`name` of the column, field or label, such as the method, by whose values calls are told apart: one "+
			"table for each")
	fs.Var(&q.Where, "where",
		"`name=value`: read only calls whose column, field or label has that value, such as status=OK; may be "+
			"given several times")
	fs.Var(&q.Unit, "unit",
		"`unit` of latencies that are numbers alone: ns, us, ms, s or m (default: what the name of a Prometheus "+
			"histogram says, none elsewhere)")
	fs.Func("no-later-than", "`duration` d of the option NoLaterThan, such as 2s: hedge n is due at n*d at the latest",
		func(s string) (err error) {
			if q.Latest, err = time.ParseDuration(s); err == nil && q.Latest <= 0 {
				err = errors.New("must be positive")
			}
			return err
		})
	fs.Func("o", "`path` of a picture of the latencies without hedging and with a budget of 10%, .png or .svg",
		func(s string) error {
			if !picture.CanDraw(s) {
				return errors.New("must end in .png or .svg")
			}
			q.Picture = s
			return nil
		})
	return &ffcli.Command{
		Name:       "whatif",
		ShortUsage: "hedge whatif [flags] [FILE]",
		ShortHelp:  "what hedging would do to calls that took so long",
		LongHelp: "FILE has what calls took that were not hedged: a latency such as 12.5ms on each line, CSV with " +
			"a header,\n" +
			"or a Prometheus histogram in text form. Without FILE, or if it is -, this is read from the standard input.",
		FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			switch {
			case len(args) > 1:
				return misuse{fmt.Errorf("unexpected argument %q: flags come first, then one file", args[1])}
			case len(args) == 1 && args[0] != "-":
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				return q.Answer(args[0], file, w, log)
			}
			return q.Answer("stdin", stdin, w, log)
		},
	}
}

// misuse is a mistake in the command line.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }
