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

// histogram has the buckets of a series of a Prometheus histogram, or the sums of several series.
type histogram struct {
	value string // of the label that tells calls apart
	edges []edge
}

// edge is the number of calls that took no longer than an edge of a bucket.
type edge struct {
	at     float64 // in units of the metric, or infinity
	calls  float64
	series int // with that edge
	line   int
}

// scrape has the series of one histogram that are still to be counted.
type scrape struct {
	in   *input
	name string
	unit Unit   // by a line with # UNIT
	of   string // the histogram which that line names

	first      string // the series and the edge of the first bucket
	known      map[string]*histogram
	all        []*histogram // in the order of the file
	last       *histogram   // of the line before
	runs       int          // of lines of one series
	edges      int
	summed     bool // known has sums, by the value of the label that tells calls apart
	sum        float64
	beyond     float64       // calls above the last edge of their series
	lastBucket time.Duration // the highest of these edges
}

const (
	// bucketSuffix ends the names of a histogram's buckets.
	bucketSuffix = "_bucket"
	// maxEdges bounds the buckets in memory. Beyond it, a series with contiguous lines is counted at
	// once, and interleaved series are added up.
	maxEdges = 1 << 14
	// maxBuckets bounds the buckets of one series.
	maxBuckets = 1000
	// maxCount bounds the calls of one bucket, so that sums of them are exact enough, and printed
	// as whole numbers.
	maxCount = 1e15
)

// readHistogram reads the buckets of one Prometheus histogram in text form, and adds up its series.
func (in *input) readHistogram(r io.Reader) error {
	s := scrape{in: in, name: strings.TrimSuffix(in.Field, bucketSuffix), known: map[string]*histogram{}}
	if err := in.eachLine(r, s.read); err != nil {
		return err
	}
	if s.first == "" {
		return in.wrong(0, "no histogram", fmt.Sprintf("lines of %s{le=\"…\"}", cmp.Or(s.name, "NAME")+bucketSuffix))
	}
	in.notes = append(in.notes,
		"A histogram knows latencies by its buckets alone: calls are taken to lie evenly within each.")
	if err := s.count(); err != nil {
		return err
	}
	if s.beyond > 0 {
		in.notes = append(in.notes,
			fmt.Sprintf("%s of the calls took longer than the last bucket, and count as %s. Percentiles beyond it "+
				"are too small.",
				figure.Percent(s.beyond/s.sum), figure.Millis(min(s.lastBucket, longest))))
	}
	return nil
}

// read reads a line.
func (s *scrape) read(number int, line []byte) error {
	in := s.in
	if line[0] == '#' {
		s.comment(strings.Fields(string(line)))
		return nil
	}
	found, expected := parseSample(string(line))
	if expected != "" {
		return in.wrong(number, quote(string(line)), expected)
	}
	of, ok := strings.CutSuffix(found.name, bucketSuffix)
	if !ok || in.Field != "" && of != s.name {
		return nil
	}
	get := func(label string) (string, bool) { v, ok := found.labels[label]; return v, ok }
	if ok, missing := in.Where.passes(get); missing != "" {
		return in.wrong(number, quote(string(line)), "the label "+strconv.Quote(missing))
	} else if !ok {
		return nil
	}
	if s.name == "" {
		s.name = strings.Clone(of)
	} else if of != s.name {
		return in.wrong(number, "the histogram "+of+" after "+s.name, "one histogram; choose it with -field")
	}
	value, ok := get(in.By)
	if !ok && in.By != "" {
		return in.wrong(number, quote(string(line)), "the label "+strconv.Quote(in.By))
	}
	return s.add(found, value, number)
}

// add adds a bucket to its series.
func (s *scrape) add(found sample, value string, line int) error {
	if s.edges >= maxEdges && !s.summed && s.known[found.series] != s.last {
		if err := s.makeRoom(); err != nil {
			return err
		}
	}
	key := found.series
	if s.summed {
		key = value
	}
	h := s.known[key]
	if h == nil {
		if _, err := s.in.group(line, value); err != nil {
			return err
		}
		h = &histogram{value: strings.Clone(value)}
		s.known[strings.Clone(key)] = h
		s.all = append(s.all, h)
	}
	if h != s.last {
		s.last = h
		s.runs++
	}
	return s.addEdge(h, found, line)
}

// makeRoom counts the series read if each is complete and contiguous. Otherwise it adds up this and
// all later series.
func (s *scrape) makeRoom() error {
	incomplete := func(h *histogram) bool {
		return len(h.edges) < 2 || !slices.ContainsFunc(h.edges, func(e edge) bool { return math.IsInf(e.at, 1) })
	}
	if s.runs == len(s.all) && !slices.ContainsFunc(s.all, incomplete) {
		err := s.count()
		clear(s.known)
		s.all, s.last, s.runs, s.edges = nil, nil, 0, 0
		return err
	}
	series := s.all
	s.known, s.all, s.summed = map[string]*histogram{}, nil, true
	for _, h := range series {
		sum := s.known[h.value]
		if sum == nil {
			sum = &histogram{value: h.value}
			s.known[h.value] = sum
			s.all = append(s.all, sum)
		}
		for _, e := range h.edges {
			sum.add(e)
		}
	}
	return nil
}

// add adds an edge, or adds its calls to an equal edge.
func (h *histogram) add(e edge) {
	if i := h.find(e.at); i >= 0 {
		h.edges[i].calls += e.calls
		h.edges[i].series++
		return
	}
	h.edges = append(h.edges, e)
}

// find returns the index of an edge, or -1.
func (h *histogram) find(at float64) int {
	return slices.IndexFunc(h.edges, func(e edge) bool { return e.at == at })
}

// unitOf is the unit that the end of a histogram's name says, after the last underscore or dot; 0 if it
// says none.
func unitOf(name string) Unit {
	return namedUnits[name[strings.LastIndexAny(name, "_.")+1:]]
}

// comment reads a line such as # UNIT rpc_duration seconds. It keeps the last one until the name of
// the histogram is known.
func (s *scrape) comment(words []string) {
	if len(words) == 4 && words[1] == "UNIT" {
		if name := strings.Trim(words[2], `"`); s.name == "" || s.name == name {
			s.of, s.unit = name, namedUnits[words[3]]
		}
	}
}

// addEdge adds a bucket to a series, or to a sum of series.
func (s *scrape) addEdge(h *histogram, found sample, line int) error {
	at, ok := found.edge()
	le := "le=" + strconv.Quote(found.labels["le"])
	bucket := found.series + le
	switch {
	case !ok:
		return s.in.wrong(line, le, `the upper edge of a bucket, such as le="0.1" or le="+Inf"`)
	case !(found.value >= 0 && found.value <= maxCount):
		return s.in.wrong(line, strconv.FormatFloat(found.value, 'g', -1, 64)+" calls",
			fmt.Sprintf("a number from 0 to %g", float64(maxCount)))
	case bucket == s.first, !s.summed && h.find(at) >= 0:
		return s.in.wrong(line, le+" of the same series again", "one scrape")
	case len(h.edges) == maxBuckets && h.find(at) < 0:
		return s.in.wrong(line, le+" as one more bucket", fmt.Sprintf("at most %s in a series", figure.Count(maxBuckets)))
	}
	s.first = cmp.Or(s.first, bucket)
	h.add(edge{at, found.value, 1, line})
	s.edges++
	return nil
}

// count counts the calls of all series in memory.
func (s *scrape) count() error {
	unit := s.in.Unit
	if s.of == s.name {
		unit = cmp.Or(unit, s.unit)
	}
	if unit = cmp.Or(unit, unitOf(s.name)); unit == 0 {
		return s.in.wrong(0, fmt.Sprintf("the histogram %s, whose name has no unit", s.name),
			"one such as "+s.name+"_seconds, or the unit of its edges, given with -unit")
	}
	for _, h := range s.all {
		slices.SortFunc(h.edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
		highest := h.edges[len(h.edges)-1]
		if len(h.edges) == 1 && math.IsInf(highest.at, 1) {
			return s.in.wrong(highest.line, `le="+Inf" as the only bucket of a series, as of a native histogram`,
				"the buckets of a classic histogram")
		}
		if len(h.edges) < 2 || !math.IsInf(highest.at, 1) {
			return s.in.wrong(highest.line, fmt.Sprintf("le=\"%g\" as the last bucket of a series", highest.at),
				`others before it, and le="+Inf" last`)
		}
		if i := slices.IndexFunc(h.edges, func(e edge) bool { return e.series != highest.series }); i >= 0 {
			e := h.edges[i]
			return s.in.wrong(e.line,
				fmt.Sprintf("le=\"%g\" in %d of %d series, and lines of a series apart from each other", e.at,
					e.series, highest.series),
				"the same buckets in all series, or each series on consecutive lines")
		}
		c, err := s.in.group(highest.line, h.value)
		if err != nil {
			return err
		}
		longest, finite, err := s.in.addBuckets(c, h.edges, unit)
		if err != nil {
			return err
		}
		calls := h.edges[len(h.edges)-1].calls
		c.add(longest, calls-finite)
		s.sum += calls
		s.beyond += calls - finite
		s.lastBucket = max(s.lastBucket, longest)
	}
	return nil
}

// addBuckets counts the calls of a series, up to its last finite edge. It returns that and how many
// they are.
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
