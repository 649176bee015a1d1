// Package followup measures what hedging gains, from losers that run to their end.
//
// A few calls are drawn when they begin. If such a call is hedged and a hedge wins, its primary runs to its end and is timed. It
// stands for all primaries that were cut short, with the weight 1/share, where share is the probability with which it was drawn.
// The estimates and their sources are in docs/followup.md.
package followup

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/sketch"
)

const (
	// enough is how many losers must have been followed before anything is measured.
	enough = 30
	// eagerly is how much more is drawn while too little is known. mostDrawn bounds the calls that are drawn in a second. The
	// pace of calls is taken over a moment too, so that a program that calls in bursts draws hardly more of one than a busy one.
	eagerly, mostDrawn = 4, 100
	moment             = 25 * time.Millisecond
	// rateMemory is the time constant of the rate at which primaries are cut short.
	rateMemory = 10 * time.Second
	// perSecond is about how many losers are followed, once enough are known. To become sure that there is nothing to gain,
	// it is soughtPerSecond.
	perSecond, soughtPerSecond = 1, 3
	// atOnce is how many losers of a target are followed at the same time, one of a method. Each holds a stream that its caller
	// would not hold without hedging, and a server may allow few.
	atOnce = 3
	// Where there is nothing to gain, a loser is followed for enoughTimes what its caller waited at most: more says no more about
	// whether hedging gains again, and the next loser has to wait for it.
	enoughTimes = 10
)

// Room bounds the losers of a target that are followed at the same time. The zero value is ready for use, and may be
// used concurrently.
type Room struct{ taken atomic.Int32 }

func (r *Room) take() bool {
	if r.taken.Add(1) <= atOnce {
		return true
	}
	r.leave()
	return false
}

func (r *Room) leave() { r.taken.Add(-1) }

// Method follows losers of the calls of one method: about one a second, and none of the calls that are not drawn. The nil
// Method draws none. All methods may be called concurrently.
//
// Times are passed in and may come in any order.
type Method struct {
	calls   atomic.Uint64
	share   atomic.Uint32 // bits of the float32 probability with which a call is drawn
	nothing atomic.Bool   // there is nothing to gain
	memory  sketch.Meter
	room    *Room

	mu      sync.Mutex // guards what follows
	most    float64    // the most calls to draw, as a share
	target  float64    // the quantile that hedging is to shorten
	slots   []*slot    // the oldest first, the current one last
	rate    float64    // primaries cut short lately, with fading memory
	rated   time.Time  // when one was cut short last
	moment  counted    // when the pace of the last moment was taken
	second  counted    // the same of the last second
	busiest float64    // calls a second, in the busiest moments of late
	average float64    // the same over the last second or more
	looked  time.Time  // when the verdict was looked at last
	likely  bool       // the estimate says that there is nothing to gain, but chance is not ruled out
	judging int        // slots[judging:] are what the verdict goes by
	running bool       // a loser is being followed
	carried float64    // the weight of losers that were drawn and could not be followed; the next one stands for them too
}

// New returns a method of which at most percent of the calls are drawn, four times that while little is known. Target is the
// quantile that hedging is to shorten. Which calls are drawn follows from the seed. The meter counts the memory; nil: none
// does. The room is the target's.
func New(percent, target float64, seed uint64, memory *sketch.Meter, room *Room) *Method {
	m := &Method{room: room}
	m.memory.PartOf(memory)
	m.memory.Add(int64(unsafe.Sizeof(*m)))
	m.moment.calls = feature.Scramble(seed)
	m.second.calls = m.moment.calls
	m.calls.Store(m.moment.calls)
	m.Configure(percent, target)
	return m
}

// Configure changes percent and target from the next call on.
func (m *Method) Configure(percent, target float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most, m.target = percent/100, target
	m.adapt()
}

// Release takes the memory out of what the meter counts. The method works as before.
func (m *Method) Release() {
	if m != nil {
		m.memory.Release()
	}
}

// Draw decides whether the loser of a call that begins is followed. It returns the probability with which the call was
// drawn; 0 if it was not.
func (m *Method) Draw() (share float32) {
	if m == nil {
		return 0
	}
	share = math.Float32frombits(m.share.Load())
	if feature.Chance(m.calls.Add(1)) < float64(share) {
		return share
	}
	return 0
}

// Call is what became of a call that could be hedged. Calls whose attempts failed are not for this package.
type Call struct {
	Share  float32       // what Draw returned
	Wait   time.Duration // how long the caller waited
	GaveUp bool          // the caller left, or the deadline passed, before any attempt answered
	Late   bool          // a hedge was due, whether it was sent or not
	Hedges int
	// CutShort says that the primary had not answered when a hedge did.
	CutShort bool
}

// Add says that a call ended at now. It returns the primary if that is to be followed, and else nil. Then Followed must be called
// when the primary has ended. Calls that are neither late nor drawn cost nothing.
func (m *Method) Add(now time.Time, c Call) *Loser {
	if m == nil || c.Share == 0 && !c.Late {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slot(now)
	defer m.weigh(s)
	m.takePace(now)
	if c.Hedges > 0 {
		s.hedged, s.hedges = s.hedged+1, s.hedges+float64(c.Hedges)
	}
	if !c.CutShort {
		s.count(&c)
		return nil
	}
	s.cut.Add(c.Wait, 1)
	gap := max(now.Sub(m.rated), 0)
	m.rate, m.rated = m.rate*math.Exp(-gap.Seconds()/rateMemory.Seconds())+1, now
	m.adapt()
	if c.Share == 0 {
		return nil
	}
	m.carried += 1 / float64(c.Share)
	if m.running || len(s.followed) == mostFollowed || !m.room.take() {
		return nil
	}
	l := &Loser{began: now.Add(-c.Wait), waited: c.Wait, weight: m.carried, Longest: race.Patience}
	if m.nothing.Load() {
		l.Longest = min(race.Patience, max(enoughTimes*c.Wait, time.Millisecond))
	}
	m.running, m.carried = true, 0
	s.followed = append(s.followed, l)
	return l
}

// Followed says that a followed loser answered at now, took after its call began, or was cut short at that age. A second call
// does nothing.
func (m *Method) Followed(now time.Time, l *Loser, took time.Duration, answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.over {
		return
	}
	m.room.leave()
	m.running = false
	l.took, l.over, l.answered = took, true, answered
	m.look(now)
}

// NothingToGain reports whether the followed calls show that hedging gains nothing.
func (m *Method) NothingToGain() bool { return m != nil && m.nothing.Load() }

// takePace notes how many calls a second there are, on average and in the busiest moments of late: those less three standard
// deviations, as one of many moments is the busiest by chance.
func (m *Method) takePace(now time.Time) {
	calls := m.calls.Load()
	if now.Before(m.moment.at) { // calls are told in any order, and a moment that begins too late would look busy
		m.moment = counted{now, calls}
	}
	n, since := m.moment.take(now, calls, moment)
	if since == 0 {
		return
	}
	m.busiest = max((n-3*math.Sqrt(n))/since.Seconds(), m.busiest*math.Exp(-since.Seconds()))
	if n, since := m.second.take(now, calls, time.Second); since > 0 {
		m.average = n / since.Seconds()
	}
	m.adapt()
}

// counted is how many calls there were at some time.
type counted struct {
	at    time.Time
	calls uint64
}

// take returns how many calls there were since then, and takes note of now. It does nothing and returns 0 if that is too little
// time ago.
func (c *counted) take(now time.Time, calls uint64, least time.Duration) (n float64, since time.Duration) {
	if since = now.Sub(c.at); since < least {
		return 0, 0
	}
	n = float64(calls - c.calls)
	c.at, c.calls = now, calls
	return n, since
}

// adapt sets the share of calls to draw. The lock must be held.
func (m *Method) adapt() {
	share, rate, known := m.most, float64(perSecond), 0 // losers that have been followed, or are being followed
	for _, s := range m.slots {
		known += len(s.followed)
	}
	if known < enough || m.likely || m.nothing.Load() { // a fast method without stragglers may never know enough
		share *= eagerly
	}
	if m.likely {
		rate = soughtPerSecond
	}
	if known >= enough {
		share = min(share, rate*rateMemory.Seconds()/max(m.rate, 1))
	}
	share = min(share, mostDrawn/max(m.busiest, m.average)) // a drawn call costs more than others
	m.share.Store(math.Float32bits(float32(min(share, 1))))
}

// CutShort says that so many hedges of a call that was drawn were sent, and that one has answered at now before the primary. It
// returns what Add does.
func (m *Method) CutShort(c *feature.Call, hedges int, now time.Time) *Loser {
	c.FollowUp.Told = true
	return m.Add(now, Call{Share: c.FollowUp.Share, Wait: now.Sub(c.Start), Late: true, Hedges: hedges, CutShort: true})
}

// Ended implements [feature.Observer]. A call with a poor answer, or one that was repeated, had hedges for another reason than a
// slow primary, unless that was still to answer.
func (m *Method) Ended(c feature.Call, e feature.End) {
	if !c.FollowUp.On || c.FollowUp.Told || !e.Known || e.FirstMessage {
		return
	}
	end, err := Call{Share: c.FollowUp.Share, Wait: e.Age}, e.Err
	if r := e.Race; r != nil {
		p := &r.Attempts[0]
		if !p.CutShort && (r.PoorAnswers() > 0 || r.Repeated) {
			return
		}
		end.Hedges, end.CutShort = r.Hedges, p.CutShort
		switch {
		case p.CutShort: // it could not be followed
			end.Wait, end.Share = r.DecidedAt, 0
		case p.HasEnded && !e.Gone:
			end.Wait, err = p.EndedAt, p.Err
		}
	}
	answered := codeset.Answers.HasStatus(err)
	if end.GaveUp = e.Gone && !answered; end.CutShort || end.GaveUp || answered {
		end.Late = end.Hedges > 0 || end.Wait >= c.Delay
		m.Add(c.Start.Add(end.Wait), end)
	}
}
