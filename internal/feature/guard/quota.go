package guard

import (
	"math"
	"time"
)

const (
	// pause is how long no hedge is sent after a sign, so that the server's limit recovers. Failures that go on in it make it
	// longer, up to minCount.
	pause = 5 * time.Second
	// So many failures within about lately are a sign, whatever failed.
	many, lately = 10, 3 * time.Second
	// suspicion is how long after a sign any RESOURCE_EXHAUSTED is one.
	suspicion = 10 * time.Minute
	// If signs follow each other within maxCount, the pause lasts twice the time between them, within minCount and maxCount.
	// That happens once in fresh at most.
	minCount, maxCount = time.Minute, 6 * time.Minute
	fresh              = 10 * time.Minute
	// expected is how many times the baseline is expected, and uncertain by how many standard deviations it may be higher
	// than the count.
	expected, uncertain = 1.25, 0.5
	// firstCredit and leastDepth are how many failures are expected at once, at first and later.
	firstCredit, leastDepth = 5, 20
	// window is after what time a baseline falls to what has failed since.
	window = 30 * time.Minute
)

// quota judges by RESOURCE_EXHAUSTED, which says itself that something is used up. It may be something that hedges use up.
// It may also be another client's fault, or the size of a request.
//
// A hedge of a request that is too large fails like its primary. So the first sign is a hedge that fails alone, or many
// failures at once. Then hedges pause, and any such failure is a sign.
//
// Failures that go on in a pause of a minute or more, in which no hedge was sent, are the baseline. From then on so many are
// expected for each call, and a failure that is expected changes nothing.
type quota struct {
	sign  time.Time // the last one
	noted float64   // failures that proved nothing, lately
	at    time.Time // of the last of them

	begun, until time.Time // of the last pause
	calls        float64   // when it began
	failures     float64   // in it, without the time in which hedges may be their cause
	first, last  time.Time // of these
	bunch, most  float64   // failures that follow each other closely, for a minute at most, and the most of them
	bunchFrom    time.Time
	counted      time.Time // when a pause was last long enough

	allFailures, allCalls float64 // without hedges, of the last pauses
	rate                  float64 // of failures that are expected for each call
	credit, depth         float64 // failures that are expected now, and the most

	windowFrom                  time.Time
	windowFailures, windowCalls float64
}

// paused reports whether a pause goes on.
func (q *quota) paused(now time.Time) bool { return now.Before(q.until) }

// explains takes note of a failure, and reports whether something else than hedges explains it.
func (q *quota) explains(now time.Time, caused bool) bool {
	q.windowFailures++
	switch {
	case q.paused(now) && now.Sub(q.begun) > settle:
		q.count(now)
	case q.paused(now):
		return false
	case !caused:
	case q.credit >= 1:
		q.credit--
	default:
		return false
	}
	return true
}

// note takes note of a failure that nothing explains, and returns how many there were lately.
func (q *quota) note(now time.Time) float64 {
	q.noted = 1 + q.noted*math.Exp(-max(0, now.Sub(q.at).Seconds())/lately.Seconds())
	q.at = now
	return q.noted
}

// goOn makes a pause longer in which a failure came.
func (q *quota) goOn(now time.Time) {
	q.until = later(q.until, now.Add(pause))
	q.noted = 0
}

// count books a failure that no hedge has caused.
func (q *quota) count(now time.Time) {
	if q.failures++; q.failures == 1 {
		q.first = now
	}
	if q.bunch++; now.Sub(q.last) > settle || now.Sub(q.bunchFrom) > minCount {
		q.bunch, q.bunchFrom = 1, now
	}
	q.last = now
	q.most = max(q.most, q.bunch)
	if end := q.begun.Add(minCount); q.until.Before(end) {
		q.until = later(q.until, now.Add(pause))
		if q.until.After(end) {
			q.until = end
		}
	}
}

// pause begins a pause.
func (q *quota) pause(now time.Time, calls float64) {
	length := pause
	if gap := now.Sub(q.sign); gap <= maxCount && !within(now, q.counted, fresh) {
		length = min(max(2*gap, minCount), maxCount)
	}
	q.sign, q.begun, q.until = now, now, now.Add(length)
	q.calls, q.failures, q.bunch, q.most, q.noted = calls, 0, 0, 0, 0
}

// advance brings it to now, where n calls were made since the last time. It reports whether a pause has ended in which
// failures went on.
func (q *quota) advance(now time.Time, calls, n float64) (goOn bool) {
	q.credit = min(q.credit+expected*q.rate*n, q.depth)
	q.windowCalls += n
	if !q.begun.IsZero() && q.counted.Before(q.begun) && !q.paused(now) && q.until.Sub(q.begun) >= minCount {
		goOn = q.conclude(now, calls)
	}
	if now.Sub(q.windowFrom) >= window {
		q.rate = min(q.rate, rate(q.windowFailures, q.windowCalls))
		q.windowFrom, q.windowFailures, q.windowCalls = now, 0, 0
	}
	return goOn
}

// conclude finds the baseline from a pause that has ended.
func (q *quota) conclude(now time.Time, calls float64) bool {
	length := q.until.Sub(q.begun) - settle
	if length < 3*minCount && q.failures > 3 && q.last.Sub(q.first) < length/3 {
		q.failures = 0 // a single bunch, as a limit has now and then where there is nearly no room
	}
	// The calls of the pause, without the time that did not count. Nobody looked when it ended.
	n := max(0, calls-q.calls) * length.Seconds() / now.Sub(q.begun).Seconds()
	q.allFailures, q.allCalls = q.allFailures/2+q.failures, q.allCalls/2+n
	q.rate = max(rate(q.failures, n), rate(q.allFailures, q.allCalls))
	q.credit, q.depth = min(q.failures, firstCredit), max(leastDepth, 2*q.most)
	q.counted, q.windowFrom, q.windowFailures, q.windowCalls = q.until, now, 0, 0
	return q.failures > 0
}

// rate is how many failures a call has at most, if so many calls had so many.
func rate(failures, calls float64) float64 {
	if calls <= 0 {
		return 0
	}
	return (failures + uncertain*math.Sqrt(failures)) / calls
}
