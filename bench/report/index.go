package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/table"
)

// Full does what Compare does, and adds the frontiers, an index and a summary.
func (r *Report) Full(ctx context.Context, w, log io.Writer) error {
	began := time.Now()
	fmt.Fprintf(w, "%s\n\n", machine())
	all, err := r.Compare(ctx, w, log)
	if all == nil {
		return err
	}
	err = errors.Join(err, r.frontiers(ctx, w, log))
	places, overviewErr := r.overview(ctx, all, log)
	if overviewErr == nil {
		fmt.Fprintf(w, "\n%s\n\n", overviewText)
		overviewSheet(places).Print(w)
		overviewErr = r.writeOverview(places)
	}
	weak := weakSpots(all)
	fmt.Fprintf(w, "\n%s\n\n", weakText)
	weak.Print(w)
	fmt.Fprintf(w, "\nWhere another policy is better than %s, by 2%% or more:\n\n", policy.Adaptive)
	betterThan(policy.Adaptive, all).Print(w)
	took := time.Since(began).Round(time.Second)
	fmt.Fprintf(w, "\nThe whole report took %v.\n", took)
	return errors.Join(err, overviewErr, r.writeIndex(all, weak, took), r.writeSummary(all, places, weak, took))
}

const frontierText = `p99 by extra load, for fixed delays, for percentiles and for the adaptive trigger, with two hedges
each. Lower and further left is better.`

const weakText = `Weak spots: workloads on which a policy is slower than none, by the percentile that compares worst,
or adds load and makes nothing faster. Both have the same draws; differences below 2% are left out.`

// writeIndex writes the page that links all others.
func (r *Report) writeIndex(all []*findings, weak *table.Sheet, took time.Duration) error {
	var s strings.Builder
	fmt.Fprintf(&s, "# Results\n\n%s Everything took %v.\n\n", machine(), took)
	if r.Short {
		s.WriteString("This was a short run, which shows that everything works; its figures mean little.\n\n")
	}
	s.WriteString(workloadList(all, ""))
	s.WriteString("\n## The frontier\n\n" + frontierText + "\n\n![p99 against extra load](frontier.png)\n")
	fmt.Fprintf(&s, "\n## Weak spots\n\n%s\n\n%s\n## Policies\n\n| policy | what it is |\n|---|---|\n", weakText,
		weak.Markdown())
	for _, p := range policy.All {
		if !p.Part {
			fmt.Fprintf(&s, "| %s | %s |\n", p.Name, p.About)
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.Folder, "README.md"), []byte(s.String()), 0o644),
		os.WriteFile(filepath.Join(r.Folder, "weak-spots.csv"), []byte(weak.CSV()), 0o644),
	)
}
