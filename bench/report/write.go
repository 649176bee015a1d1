package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/picture"
)

// write writes the findings into a folder: the tables as CSV and Markdown, and the pictures.
func (f *findings) write(folder string) error {
	at := func(suffix string) string { return filepath.Join(folder, f.workload.Name+suffix) }
	files := map[string]string{".csv": f.figures(false).CSV(), ".md": f.markdown()}
	if parts := f.byPart(); parts != nil {
		files["-parts.csv"] = parts.CSV()
	}
	if agreed := agreementSheet(f.agreed); agreed != nil {
		files["-clocks.csv"] = agreed.CSV()
	}
	if course := f.courseSheet(); course != nil {
		files["-time.csv"] = course.CSV()
	}
	for suffix, text := range files {
		if err := os.WriteFile(at(suffix), []byte(text), 0o644); err != nil {
			return err
		}
	}
	found := f.runs[len(f.runs)-1] // in virtual time, where there is that
	if err := picture.Write(at(".png"), []picture.Panel{f.panel(found)}); err != nil {
		return err
	}
	if err := picture.Write(at("-load.png"), []picture.Bars{f.bars(found)}); err != nil {
		return err
	}
	if !f.workload.HasCourse() {
		return nil
	}
	return picture.Write(at("-time.png"), f.courses(found))
}

// markdown is the page of the workload.
func (f *findings) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "## %s\n\n%s.\n\n", f.workload.Name, capital(f.workload.About))
	for _, found := range f.runs {
		fmt.Fprintf(&s, "%s\n", found.describe(f.workload, f.seed))
	}
	fmt.Fprintf(&s, "\n%s\n", f.figures(true).Markdown())
	if parts := f.byPart(); parts != nil {
		fmt.Fprintf(&s, "%s\n", parts.Markdown())
		if f.workload.Fleet != nil {
			fmt.Fprintf(&s, "%s\n\n", f.aboutSteps())
		}
	}
	if agreed := agreementSheet(f.agreed); agreed != nil {
		fmt.Fprintf(&s, "%s\n\n%s\n", agreementText, agreed.Markdown())
	}
	fmt.Fprintf(&s, "![Latency by percentile](%s.png)\n\n![p99 and extra load](%[1]s-load.png)\n", f.workload.Name)
	if f.workload.HasCourse() {
		fmt.Fprintf(&s, "\n![The course of the run](%s-time.png)\n", f.workload.Name)
	}
	return s.String()
}

func (f *findings) panel(found clockRun) picture.Panel {
	noun, value := f.workload.Words()
	p := picture.Panel{Noun: noun, Value: value, Title: fmt.Sprintf("%s: %s %s, %s", f.workload.Name,
		figure.Count(int64(found.size.Calls)), noun, found.clock.Place())}
	looks := lookOf(found.results)
	for i, r := range found.results[:min(len(found.results), curvesDrawn)] {
		p.Curves = append(p.Curves, picture.Curve{Label: r.Policy.Name + ", " + figure.Percent(r.ExtraLoad()) +
			" extra load", Sorted: r.Sorted, Look: looks[i]})
	}
	return p
}

func (f *findings) bars(found clockRun) picture.Bars {
	noun, value := f.workload.Words()
	b := picture.Bars{Value: value, Title: fmt.Sprintf("%s: %s %s, %s", f.workload.Name,
		figure.Count(int64(found.size.Calls)), noun, found.clock.Place())}
	for _, r := range found.results {
		b.Rows = append(b.Rows, picture.Bar{Label: r.Policy.Name, P99: r.Percentile(0.99).Seconds() * 1e3,
			ExtraLoad: r.ExtraLoad()})
	}
	return b
}

// curvesDrawn is how many of a workload's policies have a curve. A reader cannot tell more apart.
const curvesDrawn = 6
