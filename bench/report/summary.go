package report

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
)

// shownFirst are the workloads whose figures a summary shows; it links the pages of the others.
var shownFirst = []string{"straggler", "ttft", "grpc-java", "slow-one-percent", "pareto", "fan-out", "sizes", "heavy", "stalls", "fleet"}

// coursesShown are the workloads whose course a summary shows.
var coursesShown = []string{"shift", "outage", "sizes", "stalls", "fleet"}

// writeSummary writes the short form of a report. Its links are relative to the folder that contains docs/.
func (r *Report) writeSummary(all []*findings, weak *table.Sheet, took time.Duration) error {
	const pages = "docs/results/"
	var s strings.Builder
	fmt.Fprintf(&s, "%s `make bench` made all of this in %v, seed %d, and makes it again on yours.\n", machine(), took, r.Seed)
	s.WriteString("In virtual time figures are exact and repeat to the digit; loopback is what the same calls take on real sockets.\n" +
		"Published figures are of others' machines, for context. Every reply was checked, and extra load is counted by the servers.\n\n")
	for _, name := range shownFirst {
		i := slices.IndexFunc(all, func(f *findings) bool { return f.workload.Name == name })
		if i < 0 {
			continue
		}
		f := all[i]
		fmt.Fprintf(&s, "### %[1]s\n\n%[2]s. `make bench BENCH_FLAGS=\"-workload %[1]s\"`, [all of it](%[3]s%[1]s.md)\n\n%[4]s\n", name, capital(f.workload.About), pages, f.shortFigures().Markdown())
		if name == "straggler" {
			fmt.Fprintf(&s, "![Latency by percentile](%s%s.png)\n\n", pages, name)
		}
		if slices.Contains(coursesShown, name) {
			fmt.Fprintf(&s, "![The course of the run](%s%s-time.png)\n\n", pages, name)
		}
	}
	fmt.Fprintf(&s, "### The frontier\n\n%s [The figures](%sfrontier.csv)\n\n![p99 against extra load](%[2]sfrontier.png)\n\n", frontierText, pages)
	for _, name := range coursesShown {
		if !slices.Contains(shownFirst, name) && slices.ContainsFunc(all, func(f *findings) bool { return f.workload.Name == name }) {
			fmt.Fprintf(&s, "### %[1]s\n\n%[2]s. `make bench BENCH_FLAGS=\"-workload %[1]s\"`, [all of it](%[3]s%[1]s.md)\n\n![The course of the run](%[3]s%[1]s-time.png)\n\n", name, capital(workload.Named(name).About), pages)
		}
	}
	if others := otherPages(all, pages); others != nil {
		fmt.Fprintf(&s, "Also measured, each with its page: %s.\n\n", strings.Join(others, ", "))
	}
	fmt.Fprintf(&s, "### Where something else is better\n\nOf each percentile the policy that beats `adaptive`, this library with nothing configured, by most, if one does by 2%% or more, and the peer if it does; of parts of a run the p99 alone.\n\n%s\n", betterThan(policy.Adaptive, all).Markdown())
	fmt.Fprintf(&s, "### Weak spots\n\n%s\n\n%s", capital(strings.TrimPrefix(weakText, "Weak spots: ")), weak.Markdown())
	return os.WriteFile(filepath.Join(r.Folder, "SUMMARY.md"), []byte(s.String()), 0o644)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func otherPages(all []*findings, pages string) []string {
	var links []string
	for _, f := range all {
		if name := f.workload.Name; !slices.Contains(shownFirst, name) && !slices.Contains(coursesShown, name) {
			links = append(links, fmt.Sprintf("[%[1]s](%[2]s%[1]s.md) (%[3]s)", name, pages, f.workload.About))
		}
	}
	return links
}

// shortFigures are the figures that readers look for first.
func (f *findings) shortFigures() *table.Sheet {
	if f.workload.Fleet != nil {
		return f.bySteps()
	}
	s := &table.Sheet{Labels: 2, Columns: slices.Concat(table.Columns("policy", "policy", "measured", "measured"), table.PercentileColumns(), table.Columns("extra load", "extra_load"))}
	for _, p := range publishedFigures[f.workload.Name] {
		s.Add(p.cells(0)...)
	}
	for i := range f.runs {
		found := f.runs[len(f.runs)-1-i]
		for _, r := range found.results[:min(curvesDrawn, len(found.results))] {
			s.Add(slices.Concat([]table.Cell{table.Word(r.Policy.Name), table.Word(found.clock.Place())}, table.PercentileCells(r.Sorted), []table.Cell{table.Share(r.ExtraLoad())})...)
		}
	}
	return s
}

// betterThan is the table of figures in which another policy is better than the given one.
func betterThan(name string, all []*findings) *table.Sheet {
	s := &table.Sheet{Labels: 2, Columns: table.Columns("workload", "workload", "percentile", "percentile", name, "ours_ms", "extra load", "our_extra_load", "better", "policy", "takes", "theirs_ms", "its extra load", "their_extra_load")}
	for _, f := range all {
		found := f.runs[len(f.runs)-1]
		i := slices.IndexFunc(found.results, func(r *run.Result) bool { return r.Policy.Name == name })
		if i < 0 {
			continue
		}
		for _, p := range append([]workload.Part{everyCall}, f.workload.Parts...) {
			for _, q := range figure.Tails {
				if p.Name == everyCall.Name || q == 0.99 {
					s.Rows = append(s.Rows, betterRows(f.workload.Name, p, q, found.results, found.results[i])...)
				}
			}
		}
	}
	return s
}

// betterRows are the rows of the best policy and of the peers, where they are faster than ours.
func betterRows(workload string, p workload.Part, q float64, results []*run.Result, ours *run.Result) [][]table.Cell {
	took := map[*run.Result]time.Duration{}
	for _, r := range results {
		sorted := r.Of(p)
		if len(sorted) == 0 {
			return nil
		}
		took[r] = figure.Quantile(sorted, q)
	}
	if p.Name != everyCall.Name {
		workload += ", " + p.Name
	}
	var rows [][]table.Cell
	for rank, r := range slices.SortedStableFunc(slices.Values(results), func(a, b *run.Result) int { return cmp.Compare(took[a], took[b]) }) {
		if isBetter := float64(took[r]) < betterFrom*float64(took[ours]); isBetter && (rank == 0 || r.Policy.Peer) {
			rows = append(rows, []table.Cell{table.Word(workload), table.Word(figure.PercentileName(q)), table.Latency(took[ours]), table.Share(ours.ExtraLoad()),
				table.Word(r.Policy.Name), table.Latency(took[r]), table.Share(r.ExtraLoad())})
		}
	}
	return rows
}
