package registry

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Target is the state of one target, or, with WithTargetName, of all targets with the same name.
type Target struct {
	Name   string
	Budget *budget.Bucket
	Resets guard.Resets

	Backends *place.Known

	registry *Registry
	guard    guard.Shared
	throttle *guard.Throttle // nil: none; guarded by Registry.mu

	unselected atomic.Int32 // calls before the first that the options select; then firstCallsSeen: see NoteSelected

	methods sync.Map // full name → *Method
	count   int      // methods; guarded by Registry.mu
}

// Method is the state of one method of a target.
type Method struct {
	// The fields that every call uses are first, so that a call touches few cache lines.
	Learner  trigger.Learner
	Counters Counters

	Name   string
	Target *Target

	SecondRequests SecondRequests // of a method of WithSingleRequest

	Guard guard.Guard

	Alarm race.Alarm // the timer for the first hedges of its calls

	settings atomic.Pointer[settings.Settings] // in force for calls that begin now
	names    atomic.Pointer[stats.Names]       // see Begins
	own      *budget.Bucket                    // nil if it never had one; guarded by Registry.mu, as is groups
	groups   *control.Groups                   // the last in settings
	classes  classes                           // of requests
	made     time.Duration                     // after the registry's origin
	recent   recent
	entry    entry

	destinations atomic.Pointer[[]string] // see SentTo

	notedUnhedgeable atomic.Bool // see ReportUnhedgeable
}

func (r *Registry) target(name string) *Target { return find[Target](&r.targets, name) }

func (r *Registry) Find(target, method string) *Method {
	if r == nil {
		return nil
	}
	if t := r.target(target); t != nil {
		return find[Method](&t.methods, method)
	}
	if target == Other && method == Other {
		return r.other.Load()
	}
	return nil
}

func find[T any](in *sync.Map, name string) *T {
	value, _ := in.Load(name)
	found, _ := value.(*T)
	return found
}

// Method returns the entry of a method, for a call that begins at now. It makes a missing entry, or
// returns Other if there are MaxMethods, and removes idle entries. It returns nil for an empty
// registry.
func (r *Registry) Method(connection, methodName string, now time.Time) *Method {
	if r == nil || r.config.Load() == nil {
		return nil
	}
	target := r.nameOf(connection)
	m := r.Find(target, methodName)
	if m == nil {
		m = r.add(target, methodName, now)
	}
	at := now.Sub(r.origin)
	if due := r.sweep.Load(); at > due && r.sweep.CompareAndSwap(due, at+sweepEvery) {
		r.removeIdle(at)
	}
	return m
}

// At returns the entry of the method at another target, for a call that begins at now.
func (m *Method) At(target string, now time.Time) *Method {
	to := m.Target.registry.Method(target, m.Name, now)
	if known := to.names.Load(); known.Method == "" {
		names := stats.Names{Target: strings.ToValidUTF8(to.Target.Name, "\ufffd"), Method: m.Names().Method}
		to.names.CompareAndSwap(known, &names)
	}
	return to
}

func (r *Registry) add(target, methodName string, now time.Time) *Method {
	for {
		c := r.config.Load()
		if int(r.count.Load()) >= c.MaxMethods {
			return r.otherMethod()
		}
		s := c.For(target, methodName) // without the lock: there may be thousands of rules
		r.mu.Lock()
		m := r.Find(target, methodName)       // another call may have been faster
		if m == nil && r.config.Load() == c { // not updated in between
			if full := int(r.count.Load()) >= c.MaxMethods; full {
				r.mu.Unlock()
				continue
			}
			m = r.newMethod(r.addTarget(target, s.Target.BudgetPercent), methodName, s)
			m.made = now.Sub(r.origin)
			m.entry.used = m.made
			r.count.Add(1)
		}
		r.mu.Unlock()
		if m != nil {
			return m
		}
	}
}

func (r *Registry) newMethod(t *Target, name string, with *settings.Settings) *Method {
	m := &Method{Name: strings.Clone(name), Target: t}
	m.Counters.departed = &r.departed
	m.Guard.Target = &t.guard
	m.names.Store(&stats.Names{})
	m.complete(with)
	m.settings.Store(with)
	m.learn(&with.Config.Config, &m.Learner)
	t.count++
	t.methods.Store(m.Name, m)
	return m
}

func (m *Method) learn(c *trigger.Config, l *trigger.Learner) {
	r := m.Target.registry
	l.Start(c, trigger.Owner{
		Budget:    m.Target.Budget,
		Pace:      &r.pace,
		Calls:     &r.calls,
		Origin:    r.origin,
		Panicked:  func() { m.Counters.Update(func(s *stats.Counts) { s.TriggerPanics++ }) },
		Evaluated: m.sample,
	})
}

func (r *Registry) addTarget(name string, budgetPercent float64) *Target {
	if t := r.target(name); t != nil {
		return t
	}
	t := &Target{Name: strings.Clone(name), registry: r, Backends: place.NewKnown(),
		Budget: r.newBudget(budgetPercent)}
	r.targets.Store(t.Name, t)
	return t
}

// newBudget returns the bucket of a new target or method. It holds one token, or none once a method
// was removed: targets that return would exceed the budget by the first tokens of their new
// buckets.
func (r *Registry) newBudget(percent float64) *budget.Bucket {
	b := budget.New(percent)
	if r.forgot {
		b.Pay(r.origin, 0)
	}
	return b
}

const maxTargetName = 1024 // bytes

// nameOf returns the name of a connection's target. All names are forgotten once there are as many
// as MaxMethods, or when a target has become idle.
func (r *Registry) nameOf(connection string) string {
	c := r.config.Load()
	if c.TargetName == nil {
		return connection
	}
	if name, known := r.names.Load(connection); known {
		return name.(string)
	}
	name := c.TargetName(connection) // without the lock: the function is the user's
	if len(name) > maxTargetName {
		name = strings.ToValidUTF8(name[:maxTargetName], "")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.named >= c.MaxMethods {
		r.forgetNames()
	}
	if _, known := r.names.LoadOrStore(strings.Clone(connection), strings.Clone(name)); !known {
		r.named++
	}
	return name
}

// r.mu must be held.
func (r *Registry) forgetNames() {
	r.names.Clear()
	r.named = 0
}

// NoteSelected records whether the options select a call. It emits a notice, once, if they selected
// none of the first firstCallsSeen calls.
func (t *Target) NoteSelected(selected bool) {
	switch n := t.unselected.Load(); {
	case n >= firstCallsSeen:
	case selected:
		t.unselected.Store(firstCallsSeen)
	case t.unselected.Add(1) == firstCallsSeen:
		t.reportUnselected()
	}
}

// Begins returns the settings in force for a call that begins, and whether hedging is paused. It
// records the names of the method and its target for metrics: see stats.Names. conn is nil for
// hedge.Do. static reports whether the call has the option grpc.StaticMethod.
func (m *Method) Begins(conn any, static bool) (s *settings.Settings, paused bool) {
	m.noteNames(conn, static || conn == nil)
	return m.settings.Load(), m.Paused()
}

// Settings returns the settings in force for calls that begin now.
func (m *Method) Settings() *settings.Settings { return m.settings.Load() }

func (m *Method) Paused() bool { return m.Target.registry.pause.Load() != "" }

// Traffic is the guard's measure of calls.
func (m *Method) Traffic() guard.Traffic {
	return guard.Traffic{Method: float64(m.Counters.Calls.Load()), Target: m.Target.Budget.Calls()}
}

func (m *Method) Names() stats.Names { return *m.names.Load() }

func (m *Method) noteNames(conn any, static bool) {
	known := m.names.Load()
	if known.Method != "" && (!static || known.Method != "other") {
		return
	}
	names := stats.Names{Target: m.Target.Name, Method: "other"}
	if c, ok := conn.(interface{ CanonicalTarget() string }); ok && m.Target.registry.config.Load().TargetName == nil {
		names.Target = c.CanonicalTarget()
	}
	if static {
		names.Method = strings.ToValidUTF8(strings.TrimLeft(m.Name, "/"), "\ufffd")
	}
	names.Target = strings.ToValidUTF8(names.Target, "\ufffd")
	m.names.CompareAndSwap(known, &names)
}

const maxDestinations = 4

// SentTo records that a hedge of the method was sent to another target.
func (m *Method) SentTo(target string) {
	for {
		var names []string
		known := m.destinations.Load()
		if known != nil {
			names = *known
		}
		if len(names) == maxDestinations || slices.Contains(names, target) {
			return
		}
		more := append(slices.Clip(names), target)
		if m.destinations.CompareAndSwap(known, &more) {
			return
		}
	}
}

// SecondRequests measures how often the callers of a bidirectional method send a second message. It
// may be used concurrently.
type SecondRequests struct{ level atomic.Int32 }

const (
	often     = 16 // one stream in this many
	mostLevel = 10 * often
)

// Expected reports whether a second message is expected of a stream that begins, and counts the
// stream.
func (t *SecondRequests) Expected() bool {
	level := t.level.Load()
	if level > 0 {
		t.level.Add(-1)
	}
	return level > 3*often
}

func (t *SecondRequests) Add() {
	if t.level.Add(often) > mostLevel {
		t.level.Store(mostLevel)
	}
}

// Counters are the counts of one method. Counts that every call changes are atomics. Counts of
// hedges change together, so they share a lock, which only late calls take. Flush must be called
// after each change: it moves the counts of a removed method to the registry's departed counts.
type Counters struct {
	ofCalls

	left     atomic.Bool // the method was removed
	departed *Counters   // of all removed methods

	mu     sync.Mutex
	hedges stats.Counts // and, of departed, all counts
}

// ofCalls are the counts that change one by one, with their names in stats.Counts.
type ofCalls struct {
	Calls, Warmup, Paused, Off, NotSelected, NoDescriptor, NotReplayable, UnknownOption, PassedThrough, Received,
	SameBackend, Control, Failed, FailedHedged, ControlFailed atomic.Int64
}

// inCounts has the index in stats.Counts of each field of ofCalls.
var inCounts = func() (indices []int) {
	for i := range reflect.TypeFor[ofCalls]().NumField() {
		field, _ := reflect.TypeFor[stats.Counts]().FieldByName(reflect.TypeFor[ofCalls]().Field(i).Name)
		indices = append(indices, field.Index[0])
	}
	return indices
}()

// Update changes the counts of hedges in one step.
func (c *Counters) Update(change func(*stats.Counts)) {
	c.mu.Lock()
	change(&c.hedges)
	c.mu.Unlock()
	c.Flush()
}

// activity returns a number that grows with every call.
func (c *Counters) activity() int64 {
	return c.Calls.Load() + c.PassedThrough.Load() + c.Received.Load()
}

// Flush moves the counts if the method was removed.
func (c *Counters) Flush() {
	if c.left.Load() {
		c.departed.Update(func(all *stats.Counts) { add(all, 1, c.read(true)) })
	}
}

// add adds more, times a factor, to a sum. Every field of stats.Counts is a count.
func add(to *stats.Counts, factor int64, more stats.Counts) {
	sum, counts := reflect.ValueOf(to).Elem(), reflect.ValueOf(more)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + factor*counts.Field(i).Int())
	}
}

// since returns the difference of each count.
func since(now, before stats.Counts) stats.Counts {
	add(&now, -1, before)
	return now
}

// read returns a consistent copy of the counts, and resets them if take is set. A call counts
// before its hedges do, so hedges are read first: there are never more hedged calls than calls.
func (c *Counters) read(take bool) stats.Counts {
	c.mu.Lock()
	s := c.hedges
	if take {
		c.hedges = stats.Counts{}
	}
	c.mu.Unlock()
	counts, sum := reflect.ValueOf(&c.ofCalls).Elem(), reflect.ValueOf(&s).Elem()
	for i := counts.NumField() - 1; i >= 0; i-- { // Calls last
		n := counts.Field(i).Addr().Interface().(*atomic.Int64)
		count := n.Load()
		if take {
			count = n.Swap(0)
		}
		to := sum.Field(inCounts[i])
		to.SetInt(to.Int() + count)
	}
	return s
}

func (c *Counters) HeldBack(why stats.Reason) {
	c.Update(func(s *stats.Counts) {
		if n := countOf[why]; n != nil {
			*n(s)++
		}
	})
}

var countOf = map[stats.Reason]func(*stats.Counts) *int64{
	stats.BudgetExhausted: func(s *stats.Counts) *int64 { return &s.BudgetExhausted },
	stats.NotReady:        func(s *stats.Counts) *int64 { return &s.NotReady },
	stats.NotDrawn:        func(s *stats.Counts) *int64 { return &s.NotDrawn },
	stats.Paused:          func(s *stats.Counts) *int64 { return &s.Paused },
	stats.Throttled:       func(s *stats.Counts) *int64 { return &s.Throttled },
	stats.DeadlineNear:    func(s *stats.Counts) *int64 { return &s.DeadlineNear },
	stats.Guarded:         func(s *stats.Counts) *int64 { return &s.Guarded },
	stats.ResetsSpent:     func(s *stats.Counts) *int64 { return &s.ResetsSpent },
	stats.ClientBusy:      func(s *stats.Counts) *int64 { return &s.ClientBusy },
	stats.OfHedge:         func(s *stats.Counts) *int64 { return &s.OfHedges },
	stats.NotReplayable:   func(s *stats.Counts) *int64 { return &s.NotReplayable },
	stats.UnknownOption:   func(s *stats.Counts) *int64 { return &s.UnknownOption },
}

const (
	sampleEvery = 10 * time.Second
	samples     = 61 // ten minutes are between the first and the last
	// markEvery is the time between two marks, so that recent counts cover one to two of it.
	markEvery = time.Minute
)

// recent tracks the recent outcomes of the callers of a method. Calls that teach the learner cost
// nothing here: the learner's window has their latencies, and the learner causes the samples.
type recent struct {
	due atomic.Int64 // the next sample, after the registry's origin
	// untaught has the latencies that callers got and the learner's window lacks: of calls that a
	// hedge answered, and of calls that teach nothing. nil before the first.
	untaught atomic.Pointer[sketch.Window]

	mu    sync.Mutex
	marks *[2]mark // the older one first; nil before the first use
	rows  []Sample // the newest is the last; the first are zero until there are as many; nil without a page
}

// mark has the counts of a moment.
type mark struct {
	at     time.Duration // after the registry's origin
	counts stats.Counts
}

// Sample describes a method at a moment, and since the sample before.
type Sample struct {
	At time.Time `json:"at"`
	// Tail is stats.Recent.P99, and Unhedged is stats.Choice.UnhedgedTail. They are 0 if no call was
	// answered within the window, and Unhedged if it is unknown or no primary answered.
	Tail, Unhedged time.Duration
	// Load is the extra load since the previous sample, as by stats.Counts.HedgeRate. Known reports
	// whether there was a call since.
	Load  float64
	Known bool

	calls, hedges, turnedAway int64 // totals at At
}

// KeepHistory starts to keep samples. It may be called concurrently, and more than once.
func (r *Registry) KeepHistory() {
	if r != nil {
		r.keepsHistory.Store(true)
	}
}

// Answered records the latency of a call that ended at now with an answer, unless the learner has
// it as the latency of a primary that answered.
func (m *Method) Answered(now time.Time, latency time.Duration) {
	w := m.recent.untaught.Load()
	if w == nil {
		m.recent.untaught.CompareAndSwap(nil, sketch.New(m.Learner.Config().Window))
		w = m.recent.untaught.Load()
	}
	w.Record(now, latency, true)
	m.sample(now)
}

// Failed counts a call that failed at now.
func (m *Method) Failed(now time.Time, hedged, inControlGroup bool) {
	m.Counters.Failed.Add(1)
	if hedged {
		m.Counters.FailedHedged.Add(1)
	}
	if inControlGroup {
		m.Counters.ControlFailed.Add(1)
	}
	m.Counters.Flush()
	m.sample(now)
}

// sample takes a sample if one is due. The learner, calls that teach nothing, and readers of the
// method cause it.
func (m *Method) sample(now time.Time) {
	h, at := &m.recent, now.Sub(m.Target.registry.origin)
	if int64(at) < h.due.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if int64(at) < h.due.Load() {
		return
	}
	h.due.Store(int64(at + sampleEvery))
	counts, marks := m.Counters.read(false), m.marks()
	if at-marks[1].at >= markEvery {
		marks[0], marks[1] = marks[1], mark{at, counts}
	}
	if m.Target.registry.keepsHistory.Load() {
		m.keep(now, &counts)
	}
}

// marks returns the two marks. m.recent.mu must be held.
func (m *Method) marks() *[2]mark {
	h := &m.recent
	if h.marks == nil {
		h.marks = &[2]mark{{at: m.made}, {at: m.made}}
	}
	return h.marks
}

// keep adds a row to the history. m.recent.mu must be held.
func (m *Method) keep(now time.Time, s *stats.Counts) {
	h := &m.recent
	if h.rows == nil {
		h.rows = make([]Sample, samples)
	}
	before := &h.rows[samples-1]
	row := Sample{At: now, calls: s.Calls, hedges: s.Hedges, turnedAway: s.TurnedAway}
	row.Tail = m.tail(now, s)
	if e := m.Learner.Estimate(); row.Tail > 0 && e != nil && e.Choice != nil && m.Learner.Answered(now, nil).Total() > 0 {
		row.Unhedged = e.Choice.UnhedgedTail
	}
	if row.Known = !before.At.IsZero() && row.calls > before.calls; row.Known {
		more := stats.Counts{Calls: row.calls - before.calls, Hedges: row.hedges - before.hedges,
			TurnedAway: row.turnedAway - before.turnedAway}
		row.Load = more.HedgeRate()
	}
	copy(h.rows, h.rows[1:])
	h.rows[samples-1] = row
}

// tail returns the p99 of the latencies that callers got within the window, or 0 without an answer.
// m.recent.mu must be held.
func (m *Method) tail(now time.Time, counts *stats.Counts) time.Duration {
	lately := since(*counts, m.marks()[0].counts)
	if why := m.Unhedged(counts); why == stats.NotSelected || why == stats.NoDescriptor ||
		lately.Failed > 0 && lately.Failed >= lately.Calls {
		return 0
	}
	p99, _ := m.Learner.Answered(now, m.recent.untaught.Load()).Quantile(0.99)
	return p99
}

// recently returns the recent outcomes of callers, given the current counts.
func (m *Method) recently(now time.Time, counts *stats.Counts) stats.Recent {
	m.sample(now)
	h := &m.recent
	h.mu.Lock()
	defer h.mu.Unlock()
	from := &m.marks()[0]
	return stats.Recent{
		Counts: since(*counts, from.counts), Over: now.Sub(m.Target.registry.origin) - from.at, P99: m.tail(now, counts),
	}
}

// History returns the samples of a method, the oldest first.
func (m *Method) History() []Sample {
	now := time.Now()
	m.sample(now)
	m.recent.mu.Lock()
	defer m.recent.mu.Unlock()
	rows := []Sample{}
	for _, s := range m.recent.rows {
		if now.Sub(s.At) <= samples*sampleEvery {
			rows = append(rows, s)
		}
	}
	return rows
}
