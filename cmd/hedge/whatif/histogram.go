package whatif

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
)

// histogram is a series of a Prometheus histogram.
type histogram struct {
	value string // of the label that tells calls apart
	edges []edge
}

// edge is how many calls took no longer than an edge of a bucket.
type edge struct {
	at    float64 // in units of the metric, or infinity
	calls float64
	line  int
}

// bucketSuffix ends the names of a histogram's buckets.
const bucketSuffix = "_bucket"

// readHistogram reads the buckets of one Prometheus histogram in text form, and adds up its series.
func (in *input) readHistogram(r io.Reader) error {
	name, all, err := in.readSeries(r)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return in.wrong(0, "no histogram", fmt.Sprintf("lines of %s{le=\"…\"}", cmp.Or(name, "NAME")+bucketSuffix))
	}
	unit := cmp.Or(in.Unit, in.stated[name], unitOf(name))
	if unit == 0 {
		return in.wrong(0, fmt.Sprintf("the histogram %s, whose name has no unit", name), "one such as "+name+"_seconds, or the unit of its edges, given with -unit")
	}
	in.notes = append(in.notes, "A histogram knows latencies by its buckets alone: calls are taken to lie evenly within each.")
	return in.addHistograms(all, unit)
}

// readSeries returns the series of one histogram, in the order of the file, and its name.
func (in *input) readSeries(r io.Reader) (name string, all []*histogram, err error) {
	known := map[string]*histogram{}
	name = strings.TrimSuffix(in.Field, bucketSuffix)
	err = in.eachLine(r, func(number int, line []byte) error {
		if line[0] == '#' {
			in.comment(strings.Fields(string(line)))
			return nil
		}
		s, expected := parseSample(string(line))
		if expected != "" {
			return in.wrong(number, quote(string(line)), expected)
		}
		of, ok := strings.CutSuffix(s.name, bucketSuffix)
		if !ok || in.Field != "" && of != name {
			return nil
		}
		get := func(label string) (string, bool) { v, ok := s.labels[label]; return v, ok }
		if ok, missing := in.Where.passes(get); missing != "" {
			return in.wrong(number, quote(string(line)), "the label "+strconv.Quote(missing))
		} else if !ok {
			return nil
		}
		if name == "" {
			name = of
		} else if of != name {
			return in.wrong(number, "the histogram "+of+" after "+name, "one histogram; choose it with -field")
		}
		h := known[s.series]
		if h == nil {
			value, ok := s.labels[in.By]
			if !ok && in.By != "" {
				return in.wrong(number, quote(string(line)), "the label "+strconv.Quote(in.By))
			}
			h = &histogram{value: value}
			known[s.series] = h
			all = append(all, h)
		}
		return in.addEdge(h, s, number)
	})
	return name, all, err
}

// unitOf is the unit that the end of a histogram's name says, after the last underscore; 0 if it says none.
func unitOf(name string) Unit {
	return namedUnits[name[strings.LastIndexByte(name, '_')+1:]]
}

// comment reads a line such as # UNIT rpc_duration seconds.
func (in *input) comment(words []string) {
	if len(words) == 4 && words[1] == "UNIT" {
		in.stated[words[2]] = namedUnits[words[3]]
	}
}

// addEdge adds a bucket of a series.
func (in *input) addEdge(h *histogram, s sample, line int) error {
	at, ok := s.edge()
	switch {
	case !ok:
		return in.wrong(line, "le="+strconv.Quote(s.labels["le"]), `the upper edge of a bucket, such as le="0.1" or le="+Inf"`)
	case !(s.value >= 0) || math.IsInf(s.value, 1):
		return in.wrong(line, strconv.FormatFloat(s.value, 'g', -1, 64)+" calls", "a number of 0 or more")
	case slices.ContainsFunc(h.edges, func(e edge) bool { return e.at == at }):
		return in.wrong(line, "le="+strconv.Quote(s.labels["le"])+" of the same series again", "one scrape")
	}
	h.edges = append(h.edges, edge{at, s.value, line})
	return nil
}

// addHistograms counts the calls of all series.
func (in *input) addHistograms(all []*histogram, unit Unit) error {
	sum, beyond, last := 0.0, 0.0, time.Duration(0)
	for _, h := range all {
		slices.SortFunc(h.edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
		highest := h.edges[len(h.edges)-1]
		if len(h.edges) < 2 || !math.IsInf(highest.at, 1) {
			return in.wrong(highest.line, fmt.Sprintf("le=\"%g\" as the last bucket of a series", highest.at), `others before it, and le="+Inf" last`)
		}
		c, err := in.group(highest.line, h.value)
		if err != nil {
			return err
		}
		longest, finite, err := in.addBuckets(c, h.edges, unit)
		if err != nil {
			return err
		}
		calls := h.edges[len(h.edges)-1].calls
		c.add(longest, calls-finite)
		sum += calls
		beyond += calls - finite
		last = max(last, longest)
	}
	if beyond > 0 {
		in.notes = append(in.notes, fmt.Sprintf("%s of the calls took longer than the last bucket, and count as %s. Percentiles beyond it are too small.",
			figure.Percent(beyond/sum), figure.Millis(last)))
	}
	return nil
}

// addBuckets counts the calls of a series, up to its last finite edge. It returns that and how many they are.
func (in *input) addBuckets(c *calls, edges []edge, unit Unit) (low time.Duration, before float64, err error) {
	for i := range edges {
		e := &edges[i]
		// What Prometheus computes from counters may differ in the last digits.
		if e.calls < before*(1-1e-6) {
			return 0, 0, in.wrong(e.line, fmt.Sprintf("%g calls up to %g", e.calls, e.at),
				fmt.Sprintf("at least the %g of the bucket before: counts of a histogram add up", before))
		}
		e.calls = max(e.calls, before)
		if math.IsInf(e.at, 1) {
			break
		}
		high, expected := inUnits(e.at, unit)
		if expected != "" {
			return 0, 0, in.wrong(e.line, fmt.Sprintf("le=\"%g\"", e.at), expected)
		}
		c.spread(low, high, e.calls-before)
		low, before = high, e.calls
	}
	return low, before, nil
}
