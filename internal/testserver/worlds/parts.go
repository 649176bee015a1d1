package worlds

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

var (
	seeds = flag.Int("worlds.seeds", 0, "seeds of each world in Ablate; 0: one, or two if HEDGE_TESTS is set")
	save  = flag.String("worlds.save", "", "write the results of all worlds to this file")
	only  = flag.String("worlds.only", "", "a regular expression that the names of worlds match in Ablate")
	from  = flag.String("worlds.from", "", "compare with the results in this file, of another version, too")
)

// Part is a part of the decision. Without takes it out, and returns a function that puts it back.
type Part struct {
	Name    string
	Without func() (back func())
}

// Unset sets a variable to the value that takes a part out.
func Unset[T any](name string, variable *T, out T) Part {
	return Part{name, func() func() {
		in := *variable
		*variable = out
		return func() { *variable = in }
	}}
}

// outcome is the results of Auto in a world, by seed.
type outcome struct {
	Name    string
	Results []Measures
	Load    float64
}

// outcomes runs Auto in all worlds.
func outcomes() []outcome {
	chosen, seeds := regexp.MustCompile(*only), cmp.Or(*seeds, longtest.Size(1, 2))
	worlds := slices.DeleteFunc(All(), func(w World) bool { return !chosen.MatchString(w.Name) })
	all := make([]outcome, len(worlds))
	var next atomic.Int64
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				o := &all[i]
				o.Name = worlds[i].Name
				for seed := range seeds {
					r := worlds[i].Run(uint64(seed+1), Auto).Result()
					for m, x := range r.All {
						if math.IsNaN(x) {
							r.All[m] = 0 // JSON has no NaN
						}
					}
					o.Results, o.Load = append(o.Results, r.All), o.Load+r.Load/float64(seeds)
				}
			}
		})
	}
	group.Wait()
	return all
}

// Ablate runs all worlds with all parts, and again without each of them, and logs the effect as the
// row of a table: geometric means of latency without the part by latency with it, the mean load
// without the part and with it, and the cells that are worse by more than 5% without it, and by
// more than twice the standard error. -run chooses parts.
func Ablate(t *testing.T, parts []Part) {
	longtest.Computation(t)
	if *save == "" && *from == "" {
		longtest.Only(t)
	}
	with := outcomes()
	if *save != "" {
		text, err := json.Marshal(with)
		if err == nil {
			err = os.WriteFile(*save, text, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if *from != "" {
		var before []outcome
		text, err := os.ReadFile(*from)
		if err == nil {
			err = json.Unmarshal(text, &before)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Log(effect("this version, by "+*from, before, with))
	}
	for _, p := range parts {
		t.Run(p.Name, func(t *testing.T) {
			defer p.Without()()
			t.Log(effect(p.Name, with, outcomes()))
		})
	}
}

// effect returns a row.
func effect(name string, with, without []outcome) string {
	var ratios []Measures
	var before, after float64
	type cell struct {
		ratio float64
		name  string
	}
	var worse, better []cell
	for _, o := range without {
		i := slices.IndexFunc(with, func(w outcome) bool { return w.Name == o.Name })
		if i < 0 {
			continue
		}
		of, ratio := with[i], Measures{}
		before, after = before+of.Load, after+o.Load
		for m := range ratio {
			var logs []float64
			for seed := range min(len(o.Results), len(of.Results)) {
				logs = append(logs, math.Log(o.Results[seed][m]/of.Results[seed][m])) // NaN if both are 0
			}
			mean, spread := meanOf(logs)
			ratio[m] = math.Exp(mean)
			switch c := (cell{ratio[m], fmt.Sprintf("%s %s %.2f±%.2f", o.Name, Measured[m], ratio[m], spread)}); {
			case mean > max(math.Log(1.05), 2*spread):
				worse = append(worse, c)
			case mean < -max(math.Log(1.05), 2*spread):
				better = append(better, c)
			}
		}
		ratios = append(ratios, ratio)
	}
	n := float64(len(ratios))
	slices.SortFunc(worse, func(a, b cell) int { return cmp.Compare(b.ratio, a.ratio) })
	slices.SortFunc(better, func(a, b cell) int { return cmp.Compare(a.ratio, b.ratio) })
	list := func(cells []cell) string {
		var names []string
		for _, c := range cells[:min(len(cells), 8)] {
			names = append(names, c.name)
		}
		return fmt.Sprintf("%d: %s", len(cells), strings.Join(names, "; "))
	}
	mean := GeometricMean(ratios)
	row := fmt.Sprintf("| %s |", name)
	for _, x := range mean {
		row += fmt.Sprintf(" %.3f |", x)
	}
	return fmt.Sprintf("%s %.1f → %.1f%% | %s | better %s |", row, before/n, after/n, list(worse), list(better))
}

// meanOf returns the mean of values and its standard error, 0 for a single value.
func meanOf(values []float64) (mean, spread float64) {
	n := float64(len(values))
	for _, x := range values {
		mean += x / n
	}
	for _, x := range values {
		spread += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(spread / max(n-1, 1) / n)
}
