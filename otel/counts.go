package hedgeotel

import (
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/grpchedge/hedge/stats"
)

// counts are the calls, and then what outcomes lists, of one pair of target and method, or of all that are not told apart.
type counts [1 + len(outcomes)]int64

func countsOf(s *stats.Counts) (c counts) {
	c[0] = s.Calls
	for n, o := range outcomes {
		c[1+n] = o.count(s)
	}
	return c
}

// add adds others so many times.
func (c *counts) add(others counts, times int64) {
	for n := range c {
		c[n] += times * others[n]
	}
}

// beganAgain reports whether the counts are of a method that was forgotten and has come back since it had others.
func (c *counts) beganAgain(before counts) bool {
	for n := range c {
		if c[n] < before[n] {
			return true
		}
	}
	return false
}

// totals are counters that never fall, although the counts of a method that the scheduler has forgotten begin again at 0. The
// counts of "other" are what remains of the scheduler's own, which never fall either. So they include those that a method had
// when it was forgotten and that were not read before.
type totals struct {
	mu    sync.Mutex // readers may collect concurrently
	of    map[*labels]counts
	rows  map[*labels]counts // those of the named methods when they were last read
	other counts
}

// add adds what was counted since the last reading. sum must have been read before the rows. If it were read after them, calls
// in between would count in "other" although their methods have names.
func (t *totals) add(sum *stats.Counts, rows map[*labels]*stats.Counts) {
	read := map[*labels]counts{}
	for l, row := range rows {
		now, of, before := countsOf(row), t.of[l], t.rows[l]
		of.add(now, 1)
		if !now.beganAgain(before) {
			of.add(before, -1)
		}
		read[l], t.of[l] = now, of
	}
	t.rows = read
	rest := countsOf(sum)
	for _, named := range t.of {
		rest.add(named, -1)
	}
	for n := range rest {
		t.other[n] = max(t.other[n], rest[n])
	}
}

// observe reports the totals.
func (t *totals) observe(m *metrics, to metric.Observer) {
	observe := func(l *labels, c counts) {
		to.ObserveInt64(m.calls, c[0], l.option)
		for n := range outcomes {
			to.ObserveInt64(m.decisions, c[1+n], l.decisions[n])
		}
	}
	for l, c := range t.of {
		observe(l, c)
	}
	if t.other != (counts{}) {
		observe(others, t.other)
	}
}
