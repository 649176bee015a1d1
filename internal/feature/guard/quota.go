package guard

import (
	"math"
	"time"
)

const (
	// shortPause is how long no hedge is sent after a sign, so that the server's limit recovers. Failures that go on in it make
	// it longer, up to minCount.
	shortPause = 5 * time.Second
	// So many failures within about lately are a sign, whatever failed.
	many, lately = 10, 3 * time.Second
	// suspicion is how long after a sign any RESOURCE_EXHAUSTED is one.
	suspicion = 10 * time.Minute
	// If signs follow each other within maxCount, the pause lasts twice the time between them, within minCount and maxCount.
	// That happens once in fresh at most.
	minCount, maxCount = time.Minute, 6 * time.Minute
	fresh              = 10 * time.Minute
)

// quota judges by RESOURCE_EXHAUSTED: see docs/guard.md. Failures that go on in a pause of a minute or more, in which no hedge
// was sent, are the baseline. From then on so many are expected for each call, and a failure that is expected changes nothing.
type quota struct {
	noted   float64   // failures that proved nothing, lately
	at      time.Time // of the last of them
	counted time.Time // when a pause was last long enough

	pause    pause // the last one, which begins with a sign
	baseline baseline
}

// unexplained notes a failure, and reports whether nothing but hedges explains it. If caused is false, there were none.
func (q *quota) unexplained(now time.Time, caused bool) bool {
	q.baseline.window.failures++
	switch on := q.pause.on(now); {
	case on && now.Sub(q.pause.begun) > settle:
		q.pause.count(now)
		return false
	case on:
	case !caused:
		return false
	case q.baseline.credit >= 1:
		q.baseline.credit--
		return false
	}
	q.noted = 1 + q.noted*math.Exp(-max(0, now.Sub(q.at).Seconds())/lately.Seconds())
	q.at = now
	return true
}

func (q *quota) begin(now time.Time, calls float64) {
	length := shortPause
	if gap := now.Sub(q.pause.begun); gap <= maxCount && !within(now, q.counted, fresh) {
		length = min(max(2*gap, minCount), maxCount)
	}
	q.pause = pause{begun: now, until: now.Add(length), calls: calls}
	q.noted = 0
}

// advance brings it to now, after n more calls. It reports whether a pause has ended in which failures went on.
func (q *quota) advance(now time.Time, calls, n float64) (goOn bool) {
	p, b := &q.pause, &q.baseline
	b.credit = min(b.credit+expected*b.rate*n, b.depth)
	b.window.calls += n
	if !p.begun.IsZero() && q.counted.Before(p.begun) && !p.on(now) && p.length() >= minCount {
		// The calls of the pause, without the time that did not count. Nobody looked when it ended.
		length := p.length() - settle
		n := max(0, calls-p.calls) * length.Seconds() / now.Sub(p.begun).Seconds()
		if length < 3*minCount && p.failures > 3 && p.last.Sub(p.first) < length/3 {
			p.failures = 0 // a single bunch, as a limit has now and then where there is nearly no room
		}
		b.learn(now, tally{p.failures, n}, p.most)
		q.counted, goOn = p.until, p.failures > 0
	}
	if now.Sub(b.windowFrom) >= window { // the rate falls to that of the window
		b.rate = min(b.rate, b.window.rate())
		b.windowFrom, b.window = now, tally{}
	}
	return goOn
}

// pause is a time without hedges, and the failures in it that no hedge can have caused.
type pause struct {
	begun, until time.Time
	calls        float64 // when it began
	failures     float64
	first, last  time.Time // of these
	bunch, most  float64   // failures that follow each other closely, for a minute at most, and the most of them
	bunchFrom    time.Time
}

func (p *pause) on(now time.Time) bool { return now.Before(p.until) }

func (p *pause) length() time.Duration { return p.until.Sub(p.begun) }

// count adds a failure that no hedge has caused.
func (p *pause) count(now time.Time) {
	if p.failures++; p.failures == 1 {
		p.first = now
	}
	if p.bunch++; now.Sub(p.last) > settle || now.Sub(p.bunchFrom) > minCount {
		p.bunch, p.bunchFrom = 1, now
	}
	p.last = now
	p.most = max(p.most, p.bunch)
	if longer := min(now.Add(shortPause).Sub(p.begun), minCount); p.length() < longer {
		p.until = p.begun.Add(longer)
	}
}

const (
	// expected is how many times the baseline is expected, uncertain how many standard deviations are added to the count.
	expected, uncertain = 1.25, 0.5
	// firstCredit and leastDepth are how many failures are expected at once, at first and later.
	firstCredit, leastDepth = 5, 20
	// window is after what time a baseline falls to what has failed since.
	window = 30 * time.Minute
)

// baseline is how many failures are expected that have nothing to do with hedges.
type baseline struct {
	pauses        tally   // without hedges, of the last pauses
	rate          float64 // of failures that are expected for each call
	credit, depth float64 // failures that are expected now, and the most

	window     tally
	windowFrom time.Time
}

type tally struct{ failures, calls float64 }

// rate is how many failures a call has at most.
func (t tally) rate() float64 {
	if t.calls <= 0 {
		return 0
	}
	return (t.failures + uncertain*math.Sqrt(t.failures)) / t.calls
}

// learn takes what failed in a pause, with the most failures of one bunch.
func (b *baseline) learn(now time.Time, t tally, most float64) {
	b.pauses = tally{b.pauses.failures/2 + t.failures, b.pauses.calls/2 + t.calls}
	b.rate = max(t.rate(), b.pauses.rate())
	b.credit, b.depth = min(t.failures, firstCredit), max(leastDepth, 2*most)
	b.windowFrom, b.window = now, tally{}
}
