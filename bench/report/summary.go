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

// writeSummary writes the short form of a report. Its links are relative to the folder that
// contains docs/.
func (r *Report) writeSummary(all []*findings, places []place, weak *table.Sheet, took time.Duration) error {
	const pages = "docs/results/"
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n\n![p99 and extra load of all workloads](%soverview.png)\n\n%s\n", overviewText, pages,
		overviewSheet(places).Markdown())
	command, also := "make bench", "the same calls over loopback sockets, "
	if !r.wants(workload.RealClock) {
		command, also = "make results", ""
	}
	fmt.Fprintf(&s, "%s\n`%s` made all of this in %v, seed %d, and repeats it on your machine.\n", machine(),
		command, took, r.Seed)
	s.WriteString("In virtual time figures are exact and repeat to the digit. The pages also show " + also +
		"published\nfigures from other machines, and other settings. Every reply was checked, and the servers " +
		"counted the\nextra load.\n\n" +
		"### The workloads\n\n" + workloadList(all, pages))
	fmt.Fprintf(&s, "\n### The frontier\n\n%s [The figures](%sfrontier.csv)\n\n![p99 against extra "+
		"load](%[2]sfrontier.png)\n\n", frontierText, pages)
	fmt.Fprintf(&s, "### Where something else is better\n\n`adaptive` is this library with nothing configured. "+
		"A row has the best policy that beats it at\nthat percentile by 2%% or more; the peer has a row too if it "+
		"does. Parts of a run have p99 alone.\n\n%s\n", betterThan(policy.Adaptive, all).Markdown())
	fmt.Fprintf(&s, "### Weak spots\n\n%s\n\n%s", capital(strings.TrimPrefix(weakText, "Weak spots: ")), weak.Markdown())
	return os.WriteFile(filepath.Join(r.Folder, "SUMMARY.md"), []byte(s.String()), 0o644)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// workloadList is a table of links to the pages of all workloads.
func workloadList(all []*findings, folder string) string {
	var s strings.Builder
	s.WriteString("| workload | what it is | run alone by |\n|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&s, "| [%[1]s](%[3]s%[1]s.md) | %[2]s | `make bench BENCH_FLAGS=\"-workload %[1]s\"` |\n",
			f.workload.Name, f.workload.About, folder)
	}
	return s.String()
}

// betterThan is the table of figures in which another policy is better than the given one.
func betterThan(name string, all []*findings) *table.Sheet {
	s := &table.Sheet{Labels: 2, Columns: table.Columns("workload", "workload", "percentile", "percentile", name,
		"ours_ms", "extra load", "our_extra_load", "better", "policy", "takes", "theirs_ms", "its extra load",
		"their_extra_load")}
	for _, f := range all {
		found := f.runs[len(f.runs)-1]
		ours := found.of(name)
		if ours == nil {
			continue
		}
		for _, p := range append([]workload.Part{everyCall}, f.workload.Parts...) {
			for _, q := range figure.Tails {
				if p.Name == everyCall.Name || q == 0.99 {
					s.Rows = append(s.Rows, betterRows(f.workload.Name, p, q, found.results, ours)...)
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
	for rank, r := range slices.SortedStableFunc(slices.Values(results),
		func(a, b *run.Result) int { return cmp.Compare(took[a], took[b]) }) {
		if isBetter := float64(took[r]) < betterFrom*float64(took[ours]); isBetter && (rank == 0 || r.Policy.Peer) {
			rows = append(rows, []table.Cell{table.Word(workload), table.Word(figure.PercentileName(q)),
				table.Latency(took[ours]), table.Share(ours.ExtraLoad()),
				table.Word(r.Policy.Name), table.Latency(took[r]), table.Share(r.ExtraLoad())})
		}
	}
	return rows
}
