// Package whatif predicts what hedging would do to calls, from what they took without it.
//
// The prediction is the one that the trigger Auto makes for hedges that are independent of their primaries. What was measured is
// read a line at a time into a histogram with buckets 2% wide, so that memory does not depend on the number of calls.
package whatif

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/settings"
)

// Question is where the latencies are in a file, and what is drawn.
type Question struct {
	Format  Format // empty: by the first line
	Field   string // the column, field or histogram with the latencies
	By      string // the column, field or label that tells calls apart; empty: none
	Where   Filter // which calls are read
	Unit    Unit   // of latencies that are numbers alone
	Picture string // a path; empty: none
}

// budgets are the budgets, in percent, that are predicted for; drawn is the default one.
var budgets = []float64{1, 2, 5, 10, 20}

const drawn = 10

// Answer reads what calls took from a file of the given name, and writes what hedging would do to them to w. How far it has come
// goes to log. If the input is wrong the error is an [*InputError].
func (q Question) Answer(name string, file io.Reader, w, log io.Writer) error {
	in := &input{Question: q, name: name, log: log, groups: map[string]*calls{}}
	if err := in.read(file); err != nil {
		return err
	}
	answers, err := in.answers()
	if err != nil {
		return err
	}
	in.print(w, answers)
	if q.Picture == "" {
		return nil
	}
	if err := draw(q.Picture, answers); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nThe picture is %s.\n", q.Picture)
	return nil
}

// answer is what hedging would do to a group of calls.
type answer struct {
	title string
	of    *calls
	rows  []row
}

type row struct {
	budget float64
	learn.Prediction
}

// answers returns what hedging would do to each group of enough calls, the largest group first.
func (in *input) answers() ([]answer, error) {
	groups := make([]*calls, 0, len(in.groups))
	for _, c := range in.groups {
		groups = append(groups, c)
	}
	slices.SortFunc(groups, func(a, b *calls) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.value, b.value))
	})
	var answers []answer
	most := 0.0
	for _, c := range groups {
		most = max(most, c.count)
		if rows := predict(c); rows != nil {
			answers = append(answers, answer{in.title(c), c, rows})
		} else {
			in.fewGroups++
			in.fewCalls += c.count
		}
	}
	if len(answers) == 0 {
		found := count(most, "call")
		if in.By != "" {
			found += " of one " + in.By
		}
		return nil, in.wrong(0, found, fmt.Sprintf("at least %d, which a prediction is made from", learn.PredictFrom))
	}
	return answers, nil
}

// predict returns what each budget would do, or nil if the calls are too few.
func predict(c *calls) []row {
	defaults, distribution := settings.DefaultConfig(), c.distribution()
	var rows []row
	for _, percent := range budgets {
		config := learn.Config{
			Target: settings.DefaultTarget, BudgetPercent: percent, MaxHedges: defaults.MaxHedges, MinDelay: defaults.MinDelay,
		}
		p, ok := config.Predict(distribution)
		if !ok {
			return nil
		}
		rows = append(rows, row{percent, p})
	}
	return rows
}
