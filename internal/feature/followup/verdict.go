package followup

import (
	"math"
	"time"
)

const (
	// tooLittle is the gain that hedging must exceed at the target quantile, tooLittleFarOut at the one ten times as far out.
	tooLittle, tooLittleFarOut = 0.05, 0.25
	// oneSided is how many standard deviations make sure. The verdict is looked at hundreds of times.
	oneSided = 3
	// judgedBy is how many followed losers a verdict goes by if there are that many: the newest ones.
	judgedBy = 100
	// newest is how many followed losers show that there is something to gain again.
	newest = 5
	// lookEvery is the least time between two looks.
	lookEvery = time.Second
)

func (m *Method) look(now time.Time) {
	if now.Sub(m.looked) < lookEvery {
		return
	}
	m.looked = now
	defer m.adapt()
	if m.nothing.Load() {
		if gains(m.slots[m.judging:]) {
			m.turn(now, false)
		}
		return
	}
	var sure bool
	if m.likely, sure = sum(m.lately(), now).nothing(m.target); sure {
		m.turn(now, true)
	}
}

// turn changes the verdict. From now on only calls that end later count for it.
func (m *Method) turn(now time.Time, nothing bool) {
	m.nothing.Store(nothing)
	m.likely = false
	m.next(now)
	m.judging = len(m.slots) - 1
}

// lately are the newest slots with enough followed losers for a verdict.
func (m *Method) lately() []*slot {
	from, n := len(m.slots), 0
	for from > m.judging && n < judgedBy {
		from--
		n += len(m.slots[from].followed)
	}
	return m.slots[from:]
}

// nothing reports whether hedging shortens the quantile q by less than tooLittle, and the one ten times as far out by less
// than tooLittleFarOut: whether that is likely, and whether chance is ruled out.
func (t *tally) nothing(q float64) (likely, sure bool) {
	if !t.measured() {
		return false, false
	}
	near, sd := t.excess(1-q, tooLittle)
	far, _ := t.excess((1-q)/10, tooLittleFarOut)
	// Far out few calls are known. If that estimate is wrong, hedges of the slowest calls still spare them most of the wait.
	likely = near < 0 && far < 0
	return likely, likely && near+oneSided*sd < 0
}

// excess says whether hedging shortens the quantile that a share beyond of the calls exceeds. Let w be that quantile of what
// callers wait. The excess is the share of calls that would take longer than w/(1 − gain) without hedging, less beyond. Below
// 0, hedging shortens the quantile by less than gain. sd is its standard deviation.
//
// Followed calls are compared in pairs. Each says by which factor its primary took longer than its caller waited, and stands
// for all calls whose primaries were cut short. One more that would never answer is assumed, for what was not seen.
func (t *tally) excess(beyond, gain float64) (excess, sd float64) {
	wait := survival(t.waited, t.gaveUp).quantile(beyond)
	bar := float64(wait) / (1 - gain)
	known, cut := survival(t.known, t.gaveUp), survival(t.cut, nil)
	one := t.losers / float64(len(t.pairs))
	mean, first, second := one, one*one, one*one // sums of w·h, w²·h and w²·h², where h is the share of a pair
	for _, p := range t.pairs {
		h := 1.0
		if p.answered {
			h = cut.at(time.Duration(bar * float64(p.waited) / float64(p.took)))
		}
		mean, first, second = mean+p.weight*h, first+p.weight*p.weight*h, second+p.weight*p.weight*h*h
	}
	mean /= t.losers + one
	variance := second - 2*mean*first + mean*mean*(t.squares+one*one)
	longer := (t.all - t.losers) * known.at(time.Duration(bar))
	return (longer+t.losers*mean)/t.all - beyond, math.Sqrt(max(variance, 0)) / t.all
}

// gains reports whether the newest losers took longer than callers waited, by more than too little and one standard
// deviation. If that is chance, hedging goes on until the next verdict.
func gains(slots []*slot) bool {
	n, total, squares := 0.0, 0.0, 0.0
	for i := len(slots) - 1; i >= 0; i-- {
		for j := len(slots[i].followed) - 1; j >= 0 && n < newest; j-- {
			if l := slots[i].followed[j]; l.over && l.took > 0 {
				saved := 1 - float64(l.waited)/float64(l.took)
				n, total, squares = n+1, total+saved, squares+saved*saved
			}
		}
	}
	if n < newest {
		return false
	}
	mean := total / n
	return mean-math.Sqrt((squares/n-mean*mean)/(n-1)) > tooLittle
}
