package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"

	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
)

// skipped is a server that was left out, and why.
type skipped struct {
	name string
	why  error
}

// header is the table's header. The backends of a proxy count the proxy's connections, and the
// calls that it canceled.
const header = `| server | version | callers | client | failed | wrong | late | p99, ms | share of plain's ` +
	`| connections | resets | GOAWAYs | backend: new connections | cancelled |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

// All measures one server after the other and writes a line for each number of callers and each
// client.
func (t *Table) All(ctx context.Context, m *Machine, w, log io.Writer) error {
	fmt.Fprint(w, header)
	var left []skipped
	for _, s := range servers() {
		if !t.chosen(s.Name) {
			continue
		}
		fmt.Fprintln(log, s.Name)
		if err := t.server(ctx, m, s, w, log); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			left = append(left, skipped{s.Name, err})
		}
	}
	for _, s := range left {
		fmt.Fprintf(w, "\nLeft out: %s: %v\n", s.name, s.why)
	}
	return nil
}

func (t *Table) chosen(name string) bool {
	return len(t.Only) == 0 || slices.ContainsFunc(t.Only, func(part string) bool {
		return strings.Contains(strings.ToLower(name), part)
	})
}

// server measures one server. An error is why it is left out.
func (t *Table) server(ctx context.Context, m *Machine, s Server, w, log io.Writer) error {
	program, err := s.Prepare(ctx, m)
	if err != nil {
		return err
	}
	row := Row{Table: t, name: s.Name, version: program.Version, http: program.HTTP, w: w, log: log}
	switch {
	case t.Stops && program.HTTP:
		return errors.New("it has one backend: -stops is for calls of gRPC")
	case t.Stops:
		behind := program
		if program.Proxy {
			if behind, err = prepareGo(ctx, m); err != nil {
				return err
			}
		}
		for range 3 {
			running, err := behind.Start(ctx, nil)
			if err != nil {
				return err
			}
			defer running.stop()
			row.addresses = append(row.addresses, running.Address)
			row.stopped = running.process
		}
	case program.Proxy:
		if row.backend, err = startBackend(); err != nil {
			return err
		}
		defer row.backend.Close()
		row.addresses = []string{row.backend.Address(0)}
	}
	if program.Proxy || !t.Stops {
		running, err := program.Start(ctx, row.addresses)
		if err != nil {
			return err
		}
		defer running.stop()
		row.addresses = []string{running.Address}
	}
	return row.runs(ctx)
}

// Row is the runs of one server.
type Row struct {
	*Table
	name, version string
	http          bool                // the client sends HTTP requests
	addresses     []string            // that the client connects to
	stopped       *os.Process         // for a second in every five; nil: none
	backend       *testserver.Cluster // of a proxy; nil: in processes of their own
	w, log        io.Writer
}

// runs makes the runs and writes a line for each.
func (r *Row) runs(ctx context.Context) error {
	for _, callers := range r.Callers {
		r.Load.Callers = callers
		without, err := r.run(ctx, plain, 0, nil)
		if err != nil {
			return err
		}
		for _, connections := range r.Connections {
			for _, budget := range r.Budgets {
				if _, err := r.run(ctx, budget, connections, without); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *Row) run(ctx context.Context, budget float64, connections int, without *Result) (*Result, error) {
	client, policy := "plain", `{"round_robin": {}}`
	if budget != plain {
		client = fmt.Sprintf("%g%%", budget)
	}
	if connections > 0 {
		client += fmt.Sprintf(", policy, %d connections", connections)
		policy = fmt.Sprintf(`{"hedge_other_backend": {"connections": %d, "childPolicy": [%s]}}`, connections, policy)
	}
	r.Dial = []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [` + policy + `]}`)}
	var stopping sync.WaitGroup
	done := make(chan struct{})
	if r.stopped != nil {
		stopping.Go(func() { stopAndGo(r.stopped, done) })
	}
	behind := " | "
	if r.backend != nil {
		if err := r.backend.WaitIdle(ctx); err != nil {
			return nil, err
		}
		r.backend.Reset()
	}
	run := r.Run
	if r.http {
		run = r.RunHTTP
	}
	result, err := run(ctx, r.addresses, tcp, budget)
	close(done)
	stopping.Wait()
	if err != nil {
		return nil, err
	}
	if r.backend != nil {
		behind = fmt.Sprintf("%d | %d", r.backend.ConnCounts().Connections, r.backend.Counts().Cancelled)
	}
	if without == nil {
		without = result
	}
	if result.First != nil {
		fmt.Fprintf(r.log, "\t%s, the first failure: %v\n", client, result.First)
	}
	fmt.Fprintf(r.w, "| %s | %s | %d | %s | %d of %d | %d | %d | %.1f | %.2f | %d | %d | %d | %s |\n", r.name,
		r.version, r.Load.Callers, client,
		result.Failed, result.Calls, result.Wrong, result.Late, 1e3*result.P99().Seconds(), float64(
			result.P99())/float64(without.P99()),
		result.Wire.Connections, result.Wire.Resets, result.Wire.GoAways, behind)
	return result, nil
}

// moduleVersion returns the version of a module that this program is built with.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == path {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return ""
}
