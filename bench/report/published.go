package report

import (
	"github.com/grpchedge/hedge/bench/table"
)

// published is a figure that others reported for a workload, measured on their machines. The oracle
// is the best policy of the same shape that knows the distribution, found by Monte Carlo
// simulation.
type published struct {
	policy    string
	tails     [5]string // p50 to p99.9 in milliseconds; empty where nothing was published
	extraLoad string
}

var publishedFigures = map[string][]published{
	"straggler": {
		{"none", [5]string{"5.0", "8.9", "17.1", "64.3", "104.5"}, "0"},
		{"static 10 ms, one hedge", [5]string{"5.0", "8.9", "13.1", "17.4", "46.5"}, "7.4%"},
		{"static 50 ms, one hedge", [5]string{"5.0", "8.9", "18.9", "54.7", "60.2"}, "2.1%"},
		{"adaptive p90, over HTTP", [5]string{"5.0", "8.9", "12.3", "17.0", "59.4"}, "8.9%"},
		{"the same over gRPC, told the rate", [5]string{"", "", "", "18.2", "41"}, "9.9%"},
		{"the same over gRPC, not told", [5]string{"", "", "", "66.2", "101"}, "0.5%"},
		{"Python over gRPC, 500 calls", [5]string{"6.9", "11.6", "13.7", "20.4", "23.5"}, "5.6%"},
		{"oracle, two hedges, 10%", [5]string{"4.8", "8.7", "12.2", "16.1", "23.8"}, "8.9%"},
	},
	"ttft": {
		{"none", [5]string{"16.4", "199.6", "217.5", "245.6", "273"}, "0"},
		{"at its p80", [5]string{"16.4", "61.6", "182.5", "224.2", ""}, "17.0%"},
		{"miscalibrated on headers (1 ms)", [5]string{"14.7", "19.4", "23.6", "198.7", ""}, "100%"},
		{"oracle, two hedges, 30%", [5]string{"15.7", "35.9", "40.2", "60.5", "215"}, "29.2%"},
		{"oracle, two hedges, 24%", [5]string{"15.7", "40.7", "44.9", "69.9", "217"}, "24.3%"},
	},
	"grpc-java": {
		{"none", [5]string{"0", "2,002", "5,002", "10,004", "10,007"}, "0"},
		{"grpc-java, static 1 s, 3 attempts", [5]string{"0", "6", "1,003", "2,002", "2,011"}, "≥10%"},
		{"oracle, two hedges, 15%", [5]string{"1.9", "5.4", "6.4", "9.8", "15"}, "13.8%"},
	},
	"slow-one-percent": {
		{"none", [5]string{"6.4", "", "11", "800", ""}, "0"},
		{"a Go helper's proxy", [5]string{"7.4", "", "81", "106", ""}, ""},
		{"oracle, 5%", [5]string{"6.6", "10.5", "12.2", "17.9", "23.4"}, "5.1%"},
	},
	"pareto": {
		{"none", [5]string{"4.8", "13.9", "22", "64", "301"}, "0"},
		{"oracle, two hedges, 10%", [5]string{"4.8", "13.9", "17.7", "22.6", "32.4"}, "10.4%"},
	},
	"fan-out": {
		{"none", [5]string{"", "", "", "", "1,800"}, "0"},
		{"static 10 ms, a table of 100 servers", [5]string{"", "", "", "", "74"}, "2%"},
	},
}

// cells are a published row of a sheet, followed by the given number of empty columns.
func (p published) cells(empty int) []table.Cell {
	cells := []table.Cell{table.Word(p.policy), table.Word("published")}
	for _, t := range p.tails {
		c := table.Cell{Text: "", Plain: ""}
		if t != "" {
			c = table.Cell{Text: t + " ms", Plain: t}
		}
		cells = append(cells, c)
	}
	cells = append(cells, table.Word(p.extraLoad))
	return append(cells, make([]table.Cell, empty)...)
}
