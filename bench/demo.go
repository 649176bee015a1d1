package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
)

// demo shows what hedging does to the tail of calls, on real connections.
type demo struct {
	calls       int
	streams     int
	concurrency int
	backends    int
	seed        int
	law         string // as testserver.ParseLaw reads it
	options     []hedge.Option
	picture     string
}

// scene is one kind of call that the demo shows.
type scene struct {
	title    string // of its calls, in the plural
	noun     string // the same in one word
	value    string // what is measured
	workload workload

	// streams says that the scene has a number of its own, and the law of its workload whatever -law says.
	streams bool
	// options are those that it needs, to which the flags add, and configured says what they are.
	options    []hedge.Option
	configured string
}

var scenes = []scene{
	{title: "unary calls", noun: "calls", value: "latency", workload: workloadNamed("straggler")},
	{
		title:      fmt.Sprintf("token streams of %d messages", tokensPerStream),
		noun:       "streams",
		value:      "time to first message",
		workload:   workloadNamed("ttft"),
		streams:    true,
		options:    []hedge.Option{hedge.WithBudgetPercent(30)},
		configured: "budget 30%",
	},
}

func (d *demo) run(ctx context.Context, w, log io.Writer) error {
	var panels []panel
	var wrong []error
	for _, s := range scenes {
		calls, name := d.calls, d.law
		if s.streams {
			calls, name = d.streams, s.workload.law
		}
		if calls == 0 {
			continue
		}
		if len(panels) > 0 {
			fmt.Fprintln(w)
		}
		law, err := testserver.ParseLaw(name)
		if err != nil {
			return err
		}
		c := &comparison{
			workload:    s.workload,
			law:         law,
			policies:    []policy{policyNamed(none), policyNamed(adaptive)},
			options:     slices.Concat(s.options, d.options),
			calls:       calls,
			concurrency: d.concurrency,
			backends:    d.backends,
			seed:        uint64(d.seed),
		}
		d.announce(w, s, c, name)
		p := startProgress(log, s.noun, int64(c.calls*len(c.policies)))
		results, stalled, err := c.run(ctx, p)
		p.end()
		if err != nil {
			return err
		}
		plain, hedged := results[0], results[1]
		writeOutcome(w, s, plain, hedged)
		if stalled.share() > stallsThatShow {
			fmt.Fprintf(w, "\nThe machine, busy with other work, stood still for %s of the run, up to %v at a time.\n"+
				"That is part of the tails above, hedged and unhedged: a run on an idle machine shows them alone.\n",
				percent(stalled.share()), stalled.longest.Round(time.Millisecond))
		}
		panels = append(panels, s.panel(name, plain, hedged))
		wrong = append(wrong, plain.err(), hedged.err())
	}
	if d.picture != "" {
		if err := d.writePicture(w, panels); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

// announce says what is about to be done, before the user waits for it.
func (d *demo) announce(w io.Writer, s scene, c *comparison, law string) {
	configured := cmp.Or(s.configured, "nothing configured")
	switch {
	case len(d.options) > 0 && s.configured != "":
		configured += ", then the flags"
	case len(d.options) > 0:
		configured = "configured by the flags"
	}
	fmt.Fprintf(w, "%s %s, %d at a time, to %s on loopback; law %q, seed %d.\n",
		count(int64(c.calls)), s.title, c.concurrency, plural(c.backends, "real backend"), law, d.seed)
	fmt.Fprintf(w, "The same %s go out without and with hedging (%s), in alternating slices of %s,\n"+
		"so that drift of the machine hits both alike. The percentiles are of the %s.\n\n", s.noun, configured, count(int64(c.sliceSize())), s.value)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// writeOutcome compares hedged calls with the same ones unhedged.
func writeOutcome(w io.Writer, s scene, plain, hedged *result) {
	t := newTable(w, 1, "", "without", "with hedging", "ratio")
	for _, q := range tails {
		t.AppendRow(row(percentileName(q), millis(plain.percentile(q)), millis(hedged.percentile(q)),
			ratio(float64(hedged.percentile(q))/float64(plain.percentile(q)))))
	}
	t.AppendSeparator()
	t.AppendRow(row("extra load, at the server", percent(plain.extraLoad()), percent(hedged.extraLoad())))
	t.AppendRow(row("hedges sent", "", count(hedged.stats.Hedges)))
	t.AppendRow(row("  and won", "", count(hedged.stats.HedgeWins)))
	t.AppendRow(row("cancelled at the server", count(plain.server.Cancelled), count(hedged.server.Cancelled)))
	delay := "still learning"
	if hedged.learned.Delay > 0 {
		delay = millis(hedged.learned.Delay)
	}
	t.AppendRow(row("learned delay", "", delay))
	t.AppendSeparator()
	t.AppendRow(row("wrong replies", count(plain.wrong), count(hedged.wrong)))
	t.AppendRow(row("failed "+s.noun, count(plain.failed), count(hedged.failed)))
	t.Render()
	if s.streams && errors.Join(plain.err(), hedged.err()) == nil {
		fmt.Fprintf(w, "\nAll %s tokens arrived intact and in order, those of each stream from one attempt.\n",
			count(int64(tokensPerStream*(len(plain.latencies)+len(hedged.latencies)))))
	}
}

func (s scene) panel(law string, plain, hedged *result) panel {
	p := panel{
		title: fmt.Sprintf("%s %s, law %q: %s without and with hedging", count(int64(len(plain.latencies))), s.title, law, s.value),
		noun:  s.noun,
		value: s.value,
		curves: []curve{
			{"without hedging", plain.sorted, 0},
			{"with hedging, " + percent(hedged.extraLoad()) + " extra load", hedged.sorted, 1},
		},
	}
	if delay := hedged.learned.Delay; delay > 0 {
		p.notes = append(p.notes, note{"learned delay, " + millis(delay), delay})
	}
	return p
}

func (d *demo) writePicture(w io.Writer, panels []panel) error {
	if err := writePicture(d.picture, panels); err != nil {
		return fmt.Errorf("-picture %s: %w", d.picture, err)
	}
	path, err := filepath.Abs(d.picture)
	if err != nil {
		path = d.picture
	}
	fmt.Fprintf(w, "\nThe latency curves are drawn in %s\n", path)
	return nil
}
