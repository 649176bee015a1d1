package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
)

// fleetTails are the percentiles that are shown of a fleet.
var fleetTails = []float64{0.50, 0.99, 0.999}

// wellWithin is how far above the p99 of plain calls before an overload the p99 of a second may be
// for the fleet to be well again. Of 400 calls, a p99 is that far off by chance only now and then.
const wellWithin = 1.5

const fleetText = `The clients, each with its own scheduler, call servers of 4 workers with a queue. Work is lognormal
with a median of 20 ms and sigma 0.5; one attempt in fifty takes ten times as long. The load is a
share of the load that keeps all workers busy. A row has the calls that began in a step of the load:
failed calls missed their deadline; busy is the share of the workers' time.`

const wellText = ` Well again is the time after the overload until the p99 of three seconds in a row is
at most 1.5 times what plain calls had before.`

// bySteps is the table of a fleet: each step of the load under each policy.
func (f *findings) bySteps() *table.Sheet {
	s := &table.Sheet{Labels: 2, Columns: table.Columns("load", "step", "policy", "policy")}
	for _, q := range fleetTails {
		s.Columns = append(s.Columns, table.Column{Title: figure.PercentileName(q), Field: figure.PercentileName(q) + "_ms"})
	}
	s.Columns = append(s.Columns, table.Columns("failed", "failed", "extra load", "extra_load", "busy", "busy")...)
	overload := f.overload()
	if overload >= 0 {
		s.Columns = append(s.Columns, table.Column{Title: "well again", Field: "well_again_s"})
	}
	found := f.runs[len(f.runs)-1]
	steps := make([][]run.Step, len(found.results))
	for i, r := range found.results {
		steps[i] = r.Steps(f.workload)
	}
	for k := range f.workload.Fleet.Steps {
		if k > 0 {
			s.Line()
		}
		for i, r := range found.results {
			if len(steps[i][k].Sorted) == 0 {
				continue
			}
			cells := stepCells(r.Policy.Name, steps[i][k])
			if overload >= 0 {
				cells = append(cells, f.wellAgain(k == overload, r, found.of(policy.None)))
			}
			s.Add(cells...)
		}
	}
	return s
}

func stepCells(policy string, s run.Step) []table.Cell {
	cells := []table.Cell{table.Word(s.Name), table.Word(policy)}
	for _, q := range fleetTails {
		cells = append(cells, table.Latency(figure.Quantile(s.Sorted, q)))
	}
	return append(cells, failedCell(float64(s.Failed)/float64(len(s.Sorted))), table.Share(s.ExtraLoad()),
		table.Share(s.Busy))
}

// failedCell is a share of failed calls, to a hundredth of a percent.
func failedCell(share float64) table.Cell {
	c := table.Share(share)
	if share > 0 {
		c.Text = fmt.Sprintf("%.2f%%", 100*share)
	} else {
		c.Text = "0"
	}
	return c
}

// overload is the index of the step that is an overload; -1 without one.
func (f *findings) overload() int {
	return slices.IndexFunc(f.workload.Fleet.Steps, func(s workload.Step) bool { return s.Name == workload.Overload })
}

// wellAgain returns the cell with a fleet's recovery time after the overload.
func (f *findings) wellAgain(isOverload bool, r, plain *run.Result) table.Cell {
	if !isOverload {
		return table.Word("")
	}
	plain = cmp.Or(plain, r) // without plain calls, what these were before
	before := slices.IndexFunc(f.workload.Parts, func(p workload.Part) bool { return p.Name == workload.Before })
	sorted := plain.Of(f.workload.Parts[before])
	if len(sorted) == 0 {
		return table.Word("")
	}
	bar := time.Duration(wellWithin * float64(figure.Quantile(sorted, 0.99)))
	seconds, ok := r.WellAgain(f.workload.Fleet.Times(len(r.Latencies))[f.overload()], bar)
	if !ok {
		return table.Word("not in this run")
	}
	return table.Cell{Text: fmt.Sprintf("%d s", seconds), Plain: fmt.Sprint(seconds)}
}

// aboutSteps explains the table of steps.
func (f *findings) aboutSteps() string {
	if f.overload() >= 0 {
		return fleetText + wellText
	}
	return fleetText
}
