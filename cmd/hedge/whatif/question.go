// Package whatif predicts the effect of hedging on calls from their latencies without it.
//
// The prediction is the one that the trigger Auto makes for hedges that are independent of their
// primaries. Measurements are read a line at a time into a histogram with buckets 2% wide, so that
// memory does not depend on the number of calls.
package whatif

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
)

// Question describes the location of the latencies in a file, and the distributions to draw.
type Question struct {
	Format  Format        // empty: by the first line
	Field   string        // the column, field or histogram with the latencies
	By      string        // the column, field or label that tells calls apart; empty: none
	Where   Filter        // which calls are read
	Unit    Unit          // of latencies that are numbers alone
	Picture string        // a path; empty: none
	Latest  time.Duration // of hedge.NoLaterThan; 0: none
}

// budgets are the budgets, in percent, that are predicted for; drawn is the default one.
var budgets = []float64{1, 2, 5, 10, 20}

const drawn = 10

// Answer reads latencies from a file of the given name, writes the predicted effect of hedging to w
// and progress to log. The error for invalid input is an [*InputError].
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

// answer is the predicted effect of hedging on a group of calls.
type answer struct {
	title string
	of    *calls
	rows  []row
}

type row struct {
	budget float64
	trigger.Prediction
}

// answers returns the prediction for each group with enough calls, the largest group first.
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
		if rows := in.predict(c); rows != nil {
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
		return nil, in.wrong(0, found, fmt.Sprintf("at least %d, which a prediction is made from", trigger.PredictFrom))
	}
	return answers, nil
}

// predict returns the prediction for each budget, or nil for too few calls.
func (q Question) predict(c *calls) []row {
	defaults, distribution := settings.DefaultConfig(), c.distribution()
	var rows []row
	for _, percent := range budgets {
		config := trigger.Config{
			BudgetPercent: percent, MaxHedges: defaults.MaxHedges, MinDelay: defaults.MinDelay, Latest: q.Latest,
		}
		p, ok := config.Predict(distribution, math.MaxFloat64) // no bound
		if !ok {
			return nil
		}
		rows = append(rows, row{percent, p})
	}
	return rows
}
