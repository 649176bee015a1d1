package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// write writes what was found into a folder: the tables as CSV and Markdown, and the pictures.
func (f *findings) write(folder string) error {
	at := func(suffix string) string { return filepath.Join(folder, f.workload.name+suffix) }
	files := map[string]string{".csv": f.figures(false).csv(), ".md": f.markdown()}
	if parts := f.byPart(); parts != nil {
		files["-parts.csv"] = parts.csv()
	}
	if agreed := agreementSheet(f.agreed); agreed != nil {
		files["-clocks.csv"] = agreed.csv()
	}
	if course := f.courseSheet(); course != nil {
		files["-time.csv"] = course.csv()
	}
	for suffix, text := range files {
		if err := os.WriteFile(at(suffix), []byte(text), 0o644); err != nil {
			return err
		}
	}
	run := f.runs[len(f.runs)-1] // in virtual time, where there is that
	if err := writePicture(at(".png"), []panel{f.panel(run)}); err != nil {
		return err
	}
	if err := writePicture(at("-load.png"), []bars{f.bars(run)}); err != nil {
		return err
	}
	if f.workload.arrivals == nil {
		return nil
	}
	return writePicture(at("-time.png"), f.courses(run))
}

// markdown is all that was found as a page.
func (f *findings) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "## %s\n\n%s.\n\n", f.workload.name, capital(f.workload.about))
	for _, run := range f.runs {
		fmt.Fprintf(&s, "%s\n", run.describe(f.workload, f.seed))
	}
	fmt.Fprintf(&s, "\n%s\n", f.figures(true).markdown())
	if parts := f.byPart(); parts != nil {
		fmt.Fprintf(&s, "%s\n", parts.markdown())
	}
	if agreed := agreementSheet(f.agreed); agreed != nil {
		fmt.Fprintf(&s, "%s\n\n%s\n", agreementText, agreed.markdown())
	}
	fmt.Fprintf(&s, "![Latency by percentile](%s.png)\n\n![p99 and extra load](%[1]s-load.png)\n", f.workload.name)
	if f.workload.arrivals != nil {
		fmt.Fprintf(&s, "\n![The course of the run](%s-time.png)\n", f.workload.name)
	}
	return s.String()
}

func (f *findings) panel(run clockRun) panel {
	noun, value := f.workload.words()
	p := panel{noun: noun, value: value, title: fmt.Sprintf("%s: %s %s, %s", f.workload.name, count(int64(run.size.calls)), noun, run.clock.place())}
	looks := lookOf(run.results)
	for i, r := range run.results[:min(len(run.results), curvesDrawn)] {
		p.curves = append(p.curves, curve{r.policy.name + ", " + percent(r.extraLoad()) + " extra load", r.sorted, looks[i]})
	}
	return p
}

func (f *findings) bars(run clockRun) bars {
	noun, value := f.workload.words()
	b := bars{value: value, title: fmt.Sprintf("%s: %s %s, %s", f.workload.name, count(int64(run.size.calls)), noun, run.clock.place())}
	for _, r := range run.results {
		b.rows = append(b.rows, bar{r.policy.name, r.percentile(0.99).Seconds() * 1e3, r.extraLoad()})
	}
	return b
}

// curvesDrawn is how many of a workload's policies have a curve: more cannot be told apart.
const curvesDrawn = 6
