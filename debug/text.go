package debug

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// writeText writes a snapshot for a terminal.
func (s *snapshot) writeText(w io.Writer) error {
	t := s.Totals
	fmt.Fprintf(w, "hedging at %s\n", s.At.Format("2006-01-02 15:04:05 MST"))
	if s.Paused {
		fmt.Fprintln(w, "Hedging is PAUSED.")
	}
	fmt.Fprintf(w, "%s, %s hedged, extra load %s of a budget of %g%%; hedges answered %s of hedged calls\n",
		plural(t.Calls, "call"), count(t.Hedged), percent(t.HedgeRate()), s.BudgetPercent, percent(helped(t.HedgeWins, t.PrimaryWins)))
	target := ""
	for i, m := range s.Methods {
		if i == 0 || m.Stats.Target != target {
			target = m.Stats.Target
			fmt.Fprintf(w, "\n%s\n", plain(target))
		}
		fmt.Fprintf(w, "\n  %s\n    %s\n", plain(m.Stats.Method), m.Sentence)
		for _, note := range m.Notes {
			fmt.Fprintf(w, "    - %s\n", note)
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, f := range m.Figures() {
			fmt.Fprintf(table, "    %s\t%s\n", f.Name, f.Value)
		}
		for _, c := range otherCounts(m.Stats.Counts) {
			fmt.Fprintf(table, "    %s\t%s\n", c.Name, count(c.Value))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if s.NotShown > 0 {
		fmt.Fprintf(w, "\n%s not shown: see ?limit= and ?filter=\n", plural(int64(s.NotShown), "method"))
	}
	return nil
}

// plain quotes a name from outside that has control characters, which a terminal would obey.
func plain(name string) string {
	if quoted := strconv.Quote(name); strings.Trim(quoted, `"`) != name {
		return quoted
	}
	return name
}

// figure is a name and a value to show.
type figure struct{ Name, Value string }

// Figures are the numbers of a method that fit on a line each.
func (r row) Figures() []figure {
	t, c := r.Stats, r.Stats.Choice
	f := []figure{
		{"calls", count(t.Calls)},
		{"hedges", fmt.Sprintf("%s (%s of calls)", count(t.Hedges), percent(t.HedgeRate()))},
		{"won by a hedge", fmt.Sprintf("%s of %s hedged calls", count(t.HedgeWins), count(t.Hedged))},
		{"delay", short(t.Delay)},
		{"p50, p90, p99 of primaries", short(t.P50) + ", " + short(t.P90) + ", " + short(t.P99)},
	}
	if c.Probability > 0 {
		f = append(f, figure{"probability", fmt.Sprintf("%.2f", c.Probability)}, figure{"hedges of a call, at most", fmt.Sprint(c.MaxHedges)},
			figure{"tail measured, predicted", short(c.MeasuredTail) + ", " + short(c.PredictedTail)},
			figure{"tail without hedging (estimate)", short(c.UnhedgedTail)},
			figure{"wins lately, predicted", percent(c.MeasuredWins) + ", " + percent(c.PredictedWins)},
			figure{"load predicted", percent(c.PredictedLoad)})
	}
	return append(f, targetFigures(t, r.at)...)
}

// helped is the share of hedged calls that a hedge answered.
func helped(won, lost int64) float64 {
	if won+lost == 0 {
		return 0
	}
	return float64(won) / float64(won+lost)
}
