package debug

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// writeText writes a view for a terminal.
func (v *view) writeText(w io.Writer) error {
	t := v.Totals
	fmt.Fprintf(w, "hedging at %s\n", v.At.Format("2006-01-02 15:04:05 MST"))
	if v.Paused {
		fmt.Fprintln(w, "Hedging is PAUSED.")
	}
	fmt.Fprintf(w, "%s, %s hedged, extra load %s of a budget of %g%%; hedges answered %s of hedged calls\n",
		plural(t.Calls, "call"), count(t.Hedged), percent(t.HedgeRate()), v.BudgetPercent, percent(helped(t.HedgeWins, t.PrimaryWins)))
	for _, methods := range v.Targets() {
		fmt.Fprintf(w, "\n%s\n", plain(methods[0].Stats.Target))
		for _, m := range methods {
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
	}
	if v.NotShown > 0 {
		fmt.Fprintf(w, "\n%s not shown: see ?limit= and ?filter=\n", plural(int64(v.NotShown), "method"))
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

// short formats a duration with three significant digits.
func short(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(float64(d)))-2)
	d = time.Duration(math.Round(float64(d)/unit) * unit)
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= u.unit {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(u.unit), u.name)
		}
	}
	return fmt.Sprintf("%d ns", d)
}

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// count formats a number with commas.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// lasting says for how long something has been so.
func lasting(since, now time.Time) string { return "for " + short(now.Sub(since)) }
