package whatif

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/trigger"
)

// print writes a table for each group, and the basis of its figures.
func (in *input) print(w io.Writer, answers []answer) {
	for i, a := range answers {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s without hedging\n", a.title, count(a.of.count, "call"))
		a.print(w)
	}
	fmt.Fprintln(w, legend)
	for _, note := range append(in.notes, in.remarks(answers)...) {
		fmt.Fprintln(w, note)
	}
	fmt.Fprint(w, "\n", independence, in.apart())
}

const legend = `
A call without an answer after the delay is sent a second time, with the given chance. If two hedges
are allowed, a third attempt follows after the same delay, with the same chance. A ratio is the
percentile with hedging divided by the percentile without.`

const independence = `This assumes independence: a second attempt is as fast as any call of the table, however slow the
first attempt is. That holds if servers are slow by chance, or one at a time. Hedging gains less if a
request is slow on every server, or if all servers are slow at once. Hedges are assumed to slow no
server down.
`

// apart describes the effect on the assumption of telling calls apart.
func (in *input) apart() string {
	if in.By != "" {
		return fmt.Sprintf("Each table is of one %s, so that differences between them do not count as chance.\n", in.By)
	}
	return "Calls of several methods or sizes differ by more than chance: separate them with -by.\n"
}

func (a answer) print(w io.Writer) {
	first := a.rows[0]
	rows := table.New(nil, 1, "budget", "delay", "chance", "hedges", "p50", "p99", "ratio", "p99.9", "ratio", "extra load")
	rows.AppendRow(table.Row("none", "", "", "", figure.Millis(first.Without(0.5)), figure.Millis(first.Without(0.99)), "",
		figure.Millis(first.Without(0.999)), "", ""))
	for _, r := range a.rows {
		rows.AppendRow(table.Row(fmt.Sprintf("%g%%", r.budget), figure.Millis(r.Plan.Delay),
			fmt.Sprintf("%.0f%%", 100*r.Plan.Probability), fmt.Sprint(r.Plan.Hedges),
			figure.Millis(r.With(0.5)), figure.Millis(r.With(0.99)), r.ratio(0.99), figure.Millis(
				r.With(0.999)), r.ratio(0.999), figure.Percent(min(r.Plan.Load, r.budget/100))))
	}
	for line := range strings.Lines(rows.Render()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func (r row) ratio(q float64) string {
	return figure.Ratio(float64(r.With(q)) / float64(r.Without(q)))
}

// remarks lists the unreliable figures.
func (in *input) remarks(answers []answer) []string {
	var remarks []string
	if in.fewGroups > 0 {
		remarks = append(remarks, fmt.Sprintf("Left out, as a prediction needs %d calls: %s of %q, with %s in all.",
			trigger.PredictFrom, count(float64(in.fewGroups), "other value"), in.By, count(in.fewCalls, "call")))
	}
	var few []string
	for _, a := range answers {
		if a.of.count < beyondP999 {
			few = append(few, a.title)
		}
		if a.of.slowest > longest {
			remarks = append(remarks, fmt.Sprintf("%s: calls of more than %v count as %v.", a.title, longest, longest))
		}
	}
	if len(few) > 0 {
		remarks = append(remarks,
			fmt.Sprintf("Fewer than ten calls are slower than p99.9, so that it may be far off: %s.",
				strings.Join(few, ", ")))
	}
	return remarks
}

// beyondP999 is how many calls there must be for ten of them to be slower than p99.9.
const beyondP999 = 10_000

// longest is the most that a histogram counts.
var longest = sketch.UpperEdge(sketch.Buckets - 1).Round(time.Minute)

// title names a group.
func (in *input) title(c *calls) string {
	if in.By == "" {
		return in.name
	}
	return in.By + " " + quote(c.value)
}

// count formats a number with its noun.
func count(n float64, noun string) string {
	whole := int64(math.Round(n))
	if whole != 1 {
		noun += "s"
	}
	return figure.Count(whole) + " " + noun
}
