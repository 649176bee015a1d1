package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
)

// skipped is a server that was left out, and why.
type skipped struct {
	name string
	why  error
}

// Run measures one server after the other and writes a row for each number of callers and each budget.
func (t *Table) Run(ctx context.Context, m *Machine, w, log io.Writer) error {
	fmt.Fprintln(w, "| server | version | callers | without hedging: failed | connections | budget | failed | connections | p99, share of without | resets | GOAWAYs |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|")
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
	backend, err := startBackend(nil)
	if err != nil {
		return err
	}
	defer backend.Close()
	address, version := backend.Address(0), moduleVersion("google.golang.org/grpc")
	if s.Prepare != nil {
		program, err := s.Prepare(ctx, m)
		if err != nil {
			return err
		}
		running, err := program.Start(ctx, address)
		if err != nil {
			return err
		}
		defer running.stop()
		address, version = running.Address, program.Version
	}
	return t.rows(ctx, s.Name, version, address, w, log)
}

// rows makes the runs against the server at an address.
func (t *Table) rows(ctx context.Context, name, version, address string, w, log io.Writer) error {
	for _, callers := range t.Callers {
		load := Load{Callers: callers, For: t.For, Options: t.Options}
		without, err := load.Run(ctx, address, tcp, plain)
		if err != nil {
			return err
		}
		logFailure(log, without)
		for _, budget := range t.Budgets {
			hedged, err := load.Run(ctx, address, tcp, budget)
			if err != nil {
				return err
			}
			logFailure(log, hedged)
			fmt.Fprintf(w, "| %s | %s | %d | %d of %d | %d | %g%% | %d of %d | %d | %.2f | %d | %d |\n", name, version, callers,
				without.Failed, without.Calls, without.Wire.Connections, budget, hedged.Failed, hedged.Calls, hedged.Wire.Connections,
				float64(hedged.P99())/float64(without.P99()), hedged.Wire.Resets, hedged.Wire.GoAways)
		}
	}
	return nil
}

func logFailure(log io.Writer, r *Result) {
	if r.First != nil {
		fmt.Fprintln(log, "\tthe first failure:", r.First)
	}
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
