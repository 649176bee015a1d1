// Package demo makes the same calls without and with hedging and shows the difference as a table
// and a picture.
package demo

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
	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/picture"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
)

// Demo compares calls without and with hedging on real connections.
type Demo struct {
	Calls        int
	Streams      int
	Concurrency  int
	Backends     int
	Seed         int
	Distribution string // as testserver.ParseDistribution reads it
	Options      []hedge.Option
	Picture      string
	Debug        string // the address at which the page of package debug is served; none if empty
}

// scene is one kind of call in the demo.
type scene struct {
	title    string // of its calls, in the plural
	noun     string // the same in one word
	value    string // the measured quantity
	workload workload.Workload

	// streams: the number of calls is Demo.Streams, and the workload gives the distribution,
	// whatever Demo.Distribution says.
	streams bool
	// options are the scene's own, to which Demo.Options are added; configured describes them.
	options    []hedge.Option
	configured string
}

var scenes = []scene{
	{title: "unary calls", noun: "calls", value: "latency", workload: workload.Named("straggler")},
	{
		title:    fmt.Sprintf("token streams of %d messages", workload.TokensPerStream),
		noun:     "streams",
		value:    "time to first message",
		workload: workload.Named("ttft"),
		streams:  true,
		// One attempt in five is slow. With two hedges, 8 of 1,000 streams would have three slow
		// attempts. Of the 10 beyond p99 that leaves 2, and the first streams, which are not
		// hedged, need more.
		options:    []hedge.Option{hedge.WithBudgetPercent(30), hedge.WithMaxHedges(3)},
		configured: "budget 30%, at most 3 hedges",
	},
}

func (d *Demo) Run(ctx context.Context, w, log io.Writer) error {
	page, err := servePage(ctx, d.Debug, w)
	if err != nil {
		return err
	}
	defer page.close()
	var panels []picture.Panel
	var wrong []error
	for _, s := range scenes {
		calls, name := d.Calls, d.Distribution
		if s.streams {
			calls, name = d.Streams, s.workload.Distribution
		}
		if calls == 0 {
			continue
		}
		if len(panels) > 0 {
			fmt.Fprintln(w)
		}
		distribution, err := testserver.ParseDistribution(name)
		if err != nil {
			return err
		}
		c := &run.Comparison{
			Workload:     s.workload,
			Distribution: distribution,
			Policies:     []policy.Policy{policy.Named(policy.None), policy.Named(policy.Adaptive)},
			Options:      slices.Concat(s.options, d.Options),
			Calls:        calls,
			Concurrency:  d.Concurrency,
			Backends:     d.Backends,
			Seed:         uint64(d.Seed),
			Watch:        page.show,
		}
		d.announce(w, s, c, name)
		p := progress.Start(log, s.noun, int64(c.Calls*len(c.Policies)))
		results, stalled, err := c.Run(ctx, p)
		p.End()
		if err != nil {
			return err
		}
		plain, hedged := results[0], results[1]
		writeOutcome(w, s, plain, hedged)
		if stalled.Share() > run.StallsThatShow {
			fmt.Fprintf(w, "\nThe machine, busy with other work, stalled for %s of the run, up to %v at a time.\n"+
				"That is part of the tails above, hedged and unhedged: a run on an idle machine shows them alone.\n",
				figure.Percent(stalled.Share()), stalled.Longest.Round(time.Millisecond))
		}
		panels = append(panels, s.panel(name, plain, hedged))
		wrong = append(wrong, plain.Err(), hedged.Err())
	}
	if d.Picture != "" {
		if err := d.writePicture(w, panels); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

// announce describes the run before it starts.
func (d *Demo) announce(w io.Writer, s scene, c *run.Comparison, distribution string) {
	configured := cmp.Or(s.configured, "nothing configured")
	switch {
	case len(d.Options) > 0 && s.configured != "":
		configured += ", then the flags"
	case len(d.Options) > 0:
		configured = "configured by the flags"
	}
	fmt.Fprintf(w, "%s %s, %d at a time, to %s on loopback; distribution %q, seed %d.\n",
		figure.Count(int64(c.Calls)), s.title, c.Concurrency, plural(c.Backends, "real backend"), distribution, d.Seed)
	fmt.Fprintf(w, "The same %s go out without and with hedging (%s), in alternating slices of %s,\n"+
		"so that drift of the machine hits both alike. The percentiles are of the %s.\n\n", s.noun, configured,
		figure.Count(int64(c.SliceSize())), s.value)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// writeOutcome writes the table that compares hedged calls with the same calls unhedged.
func writeOutcome(w io.Writer, s scene, plain, hedged *run.Result) {
	t := table.New(w, 1, "", "without", "with hedging", "ratio")
	for _, q := range figure.Tails {
		t.AppendRow(table.Row(figure.PercentileName(q), figure.Millis(plain.Percentile(q)),
			figure.Millis(hedged.Percentile(q)),
			figure.Ratio(float64(hedged.Percentile(q))/float64(plain.Percentile(q)))))
	}
	t.AppendSeparator()
	t.AppendRow(table.Row("extra load, at the server", figure.Percent(plain.ExtraLoad()),
		figure.Percent(hedged.ExtraLoad())))
	t.AppendRow(table.Row("hedges sent", "", figure.Count(hedged.Stats.Hedges)))
	t.AppendRow(table.Row("  and won", "", figure.Count(hedged.Stats.HedgeWins)))
	t.AppendRow(table.Row("cancelled at the server", figure.Count(plain.Server.Cancelled),
		figure.Count(hedged.Server.Cancelled)))
	delay := "still learning"
	if hedged.Learned.Delay > 0 {
		delay = figure.Millis(hedged.Learned.Delay)
	}
	t.AppendRow(table.Row("learned delay", "", delay))
	t.AppendSeparator()
	t.AppendRow(table.Row("wrong replies", figure.Count(plain.Wrong), figure.Count(hedged.Wrong)))
	t.AppendRow(table.Row("failed "+s.noun, figure.Count(plain.Failed), figure.Count(hedged.Failed)))
	t.Render()
	if s.streams && errors.Join(plain.Err(), hedged.Err()) == nil {
		fmt.Fprintf(w, "\nAll %s tokens arrived intact and in order, those of each stream from one attempt.\n",
			figure.Count(int64(workload.TokensPerStream*(len(plain.Latencies)+len(hedged.Latencies)))))
	}
}

func (s scene) panel(distribution string, plain, hedged *run.Result) picture.Panel {
	p := picture.Panel{
		Title: fmt.Sprintf("%s %s, distribution %q: %s without and with hedging",
			figure.Count(int64(len(plain.Latencies))), s.title, distribution, s.value),
		Noun:  s.noun,
		Value: s.value,
		Curves: []picture.Curve{
			{Label: "without hedging", Sorted: plain.Sorted, Look: 0},
			{Label: "with hedging, " + figure.Percent(hedged.ExtraLoad()) + " extra load", Sorted: hedged.Sorted, Look: 1},
		},
	}
	if delay := hedged.Learned.Delay; delay > 0 {
		p.Notes = append(p.Notes, picture.Note{Label: "learned delay, " + figure.Millis(delay), Latency: delay})
	}
	return p
}

func (d *Demo) writePicture(w io.Writer, panels []picture.Panel) error {
	if err := picture.Write(d.Picture, panels); err != nil {
		return fmt.Errorf("-picture %s: %w", d.Picture, err)
	}
	path, err := filepath.Abs(d.Picture)
	if err != nil {
		path = d.Picture
	}
	fmt.Fprintf(w, "\nThe latency curves are drawn in %s\n", path)
	return nil
}
