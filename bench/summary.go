package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shownFirst are the workloads of which a summary shows the figures; of the others it names the pages.
var shownFirst = []string{"straggler", "ttft", "grpc-java", "slow-one-percent", "pareto", "fan-out"}

// writeSummary writes the short form of a report, for a README: paths in it begin with pages.
func (r *report) writeSummary(all []*findings, weak *sheet, took time.Duration) error {
	const pages = "docs/results/"
	var s strings.Builder
	fmt.Fprintf(&s, "%s `make bench` made all of this in %v, seed %d, and makes it again on yours.\n", machine(), took, r.seed)
	s.WriteString("In virtual time figures are exact and repeat to the digit; loopback is what the same calls take on real sockets.\n" +
		"Published figures are of others' machines, for context. Every reply was checked, and extra load is counted by the servers.\n\n")
	for _, name := range shownFirst {
		i := slices.IndexFunc(all, func(f *findings) bool { return f.workload.name == name })
		if i < 0 {
			continue
		}
		f := all[i]
		fmt.Fprintf(&s, "### %[1]s\n\n%[2]s. `make bench BENCH_FLAGS=\"-workload %[1]s\"`, [all of it](%[3]s%[1]s.md)\n\n%[4]s\n", name, capital(f.workload.about), pages, f.shortFigures().markdown())
		if name == "straggler" {
			fmt.Fprintf(&s, "![Latency by percentile](%s%s.png)\n\n", pages, name)
		}
	}
	fmt.Fprintf(&s, "### The frontier\n\n%s [The figures](%sfrontier.csv)\n\n![p99 against extra load](%[2]sfrontier.png)\n\n", frontierText, pages)
	for _, name := range []string{"shift", "outage"} {
		if slices.ContainsFunc(all, func(f *findings) bool { return f.workload.name == name }) {
			fmt.Fprintf(&s, "### %[1]s\n\n%[2]s. `make bench BENCH_FLAGS=\"-workload %[1]s\"`, [all of it](%[3]s%[1]s.md)\n\n![The course of the run](%[3]s%[1]s-time.png)\n\n", name, capital(workloadNamed(name).about), pages)
		}
	}
	if others := otherPages(all, pages); others != nil {
		fmt.Fprintf(&s, "Also measured, each with its page: %s.\n\n", strings.Join(others, ", "))
	}
	fmt.Fprintf(&s, "### Where something else is better\n\nOf each percentile the policy that beats `adaptive`, this library with nothing configured, by most, if one does by 2%% or more, and the peer if it does; of parts of a run the p99 alone.\n\n%s\n", betterThan(adaptive, all).markdown())
	fmt.Fprintf(&s, "### Weak spots\n\n%s\n\n%s", capital(strings.TrimPrefix(weakText, "Weak spots: ")), weak.markdown())
	return os.WriteFile(filepath.Join(r.folder, "SUMMARY.md"), []byte(s.String()), 0o644)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func otherPages(all []*findings, pages string) []string {
	var links []string
	for _, f := range all {
		if name := f.workload.name; !slices.Contains(shownFirst, name) && name != "shift" && name != "outage" {
			links = append(links, fmt.Sprintf("[%[1]s](%[2]s%[1]s.md) (%[3]s)", name, pages, f.workload.about))
		}
	}
	return links
}

// shortFigures are the figures that a reader looks for first.
func (f *findings) shortFigures() *sheet {
	s := &sheet{labels: 2, columns: slices.Concat([]column{{"policy", "policy"}, {"measured", "measured"}}, percentileColumns(), []column{{"extra load", "extra_load"}})}
	for _, p := range publishedFigures[f.workload.name] {
		s.add(p.cells(0)...)
	}
	for i := range f.runs {
		run := f.runs[len(f.runs)-1-i]
		for _, r := range run.results[:min(curvesDrawn, len(run.results))] {
			s.add(slices.Concat([]cell{word(r.policy.name), word(run.clock.place())}, percentileCells(r.sorted), []cell{share(r.extraLoad())})...)
		}
	}
	return s
}

// betterThan is the table of figures that some other policy does better than the given one.
func betterThan(name string, all []*findings) *sheet {
	s := &sheet{labels: 2, columns: []column{{"workload", "workload"}, {"percentile", "percentile"}, {name, "ours_ms"}, {"extra load", "our_extra_load"},
		{"better", "policy"}, {"takes", "theirs_ms"}, {"its extra load", "their_extra_load"}}}
	for _, f := range all {
		run := f.runs[len(f.runs)-1]
		i := slices.IndexFunc(run.results, func(r *result) bool { return r.policy.name == name })
		if i < 0 {
			continue
		}
		for _, p := range append([]part{everyCall}, f.workload.parts...) {
			for _, q := range tails {
				if p.name == everyCall.name || q == 0.99 {
					s.rows = append(s.rows, betterRows(f.workload.name, p, q, run.results, run.results[i])...)
				}
			}
		}
	}
	return s
}

// betterRows are the rows of the best policy and of the peers, where they take less than ours does.
func betterRows(workload string, p part, q float64, results []*result, ours *result) [][]cell {
	took := map[*result]time.Duration{}
	for _, r := range results {
		sorted := r.of(p)
		if len(sorted) == 0 {
			return nil
		}
		took[r] = quantile(sorted, q)
	}
	if p.name != everyCall.name {
		workload += ", " + p.name
	}
	var rows [][]cell
	for rank, r := range slices.SortedStableFunc(slices.Values(results), func(a, b *result) int { return cmp.Compare(took[a], took[b]) }) {
		if isBetter := float64(took[r]) < betterFrom*float64(took[ours]); isBetter && (rank == 0 || r.policy.peer) {
			rows = append(rows, []cell{word(workload), word(percentileName(q)), latency(took[ours]), share(ours.extraLoad()),
				word(r.policy.name), latency(took[r]), share(r.extraLoad())})
		}
	}
	return rows
}
