package hedgeotel

import (
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/grpchedge/hedge/stats"
)

// counts are the counters of one pair of target and method, or of all that are not told apart.
type counts struct {
	calls int64
	of    []int64 // as outcomes
}

func noCounts() *counts { return &counts{of: make([]int64, len(outcomes))} }

func countsOf(s *stats.Counts) *counts {
	c := noCounts()
	c.calls = s.Calls
	for n, o := range outcomes {
		c.of[n] = o.count(s)
	}
	return c
}

// each visits every count, together with the same one of others.
func (c *counts) each(others *counts, visit func(count *int64, other int64)) {
	visit(&c.calls, others.calls)
	for n := range c.of {
		visit(&c.of[n], others.of[n])
	}
}

// beganAgain reports whether the counts are of a method that was forgotten and has come back since it had others.
func (c *counts) beganAgain(before *counts) (less bool) {
	c.each(before, func(count *int64, before int64) { less = less || *count < before })
	return less
}

// totals are counters that never fall, although the counts of a method that the scheduler has forgotten begin again at 0. The
// counts of "other" are what remains of the scheduler's own, which never fall either. So they include those that a method had
// when it was forgotten and that were not read before.
type totals struct {
	mu    sync.Mutex // readers may collect concurrently
	of    map[*labels]*counts
	rows  map[*labels]*counts // those of the named methods when they were last read
	other *counts
}

func newTotals() *totals {
	return &totals{of: map[*labels]*counts{}, other: noCounts()}
}

// add adds what was counted since the last reading. sum must have been read before the rows. If it were read after them, calls
// in between would count in "other" although their methods have names.
func (t *totals) add(sum *stats.Counts, rows map[*labels]*stats.Counts) {
	read := map[*labels]*counts{}
	for l, row := range rows {
		now := countsOf(row)
		read[l] = now
		grown := t.of[l]
		if grown == nil {
			grown = noCounts()
			t.of[l] = grown
		}
		grown.each(now, func(count *int64, now int64) { *count += now })
		if before := t.rows[l]; before != nil && !now.beganAgain(before) {
			grown.each(before, func(count *int64, before int64) { *count -= before })
		}
	}
	t.rows = read
	rest := countsOf(sum)
	for _, named := range t.of {
		rest.each(named, func(count *int64, named int64) { *count -= named })
	}
	t.other.each(rest, func(count *int64, rest int64) { *count = max(*count, rest) })
}

// observe reports the totals.
func (t *totals) observe(m *metrics, to metric.Observer) {
	for l, c := range t.of {
		c.observe(m, to, l)
	}
	seen := false
	t.other.each(t.other, func(_ *int64, n int64) { seen = seen || n > 0 })
	if seen {
		t.other.observe(m, to, others)
	}
}

func (c *counts) observe(m *metrics, to metric.Observer, l *labels) {
	to.ObserveInt64(m.calls, c.calls, l.option)
	for n := range outcomes {
		to.ObserveInt64(m.decisions, c.of[n], l.decisions[n])
	}
}
