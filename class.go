package hedge

import (
	"context"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/learn"
)

// WithClass has latency be learned, and calls be hedged, for each class of requests of a method: a tenant, a priority, the
// length of a prompt, the size of what is asked for. of names the class of a request; "" is none. [BySize] is such a function.
//
// Where the request decides how long a call takes, one delay for all of a method is too late for the cheap requests and too
// early for the dear ones. A method has at most 16 classes, and all further ones share one named [Other]; a name is cut off at
// 64 bytes. While a class has too few calls, what is known of the method stands in. The budget stays the target's.
//
// of runs on the caller's goroutine, once for each call of a unary method and once for the request of a server stream, and
// must be safe for concurrent use. It must not change the request. A panic in it is the caller's, and what it takes to return
// is added to every call. For [Do] the request is nil. Nil, the default, means no classes.
func WithClass(of func(ctx context.Context, method string, request any) string) Option {
	return func(c *config) error {
		c.class = of
		return nil
	}
}

// BySize is a class function for [WithClass]: the size of a protobuf request on the wire, in powers of four. Requests that are
// no protobuf messages have no class.
func BySize(_ context.Context, _ string, request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	return sizes[min((bits.Len(uint(proto.Size(m)))+1)/2, len(sizes)-1)]
}

// sizes are the names of the classes of BySize: class n has the sizes below 4ⁿ.
var sizes = func() (names [maxClasses]string) {
	for n := range names {
		names[n] = "<" + strconv.Itoa(1<<(2*n)) + "B"
	}
	return names
}()

const (
	maxClasses   = 16 // of a method, beside the shared one
	maxClassName = 64 // bytes
)

// classes are what a method has learned of each class of requests.
type classes struct {
	known sync.Map // name → *class
	mu    sync.Mutex
	count int
}

type class struct {
	name    string
	learner learn.Learner
}

// of returns the entry of a class, made now if need be.
func (cs *classes) of(s *Scheduler, m *method, name string) *class {
	name = name[:min(len(name), maxClassName)]
	if c, ok := cs.known.Load(name); ok {
		return c.(*class)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.count >= maxClasses {
		name = Other
	}
	if c, ok := cs.known.Load(name); ok {
		return c.(*class)
	}
	c := &class{name: strings.Clone(name)}
	c.learner.Start(&s.learning, m.target.budget, s.epoch, m.policy == nil)
	cs.known.Store(c.name, c)
	cs.count++
	return c
}

// Classify tells the request of the call, for [WithClass]: the delay is that of the request's class from now on, and the class
// learns what the call takes. It comes before the first hedge is due, and no other method is called meanwhile.
func (c *Call) Classify(request any) {
	if !c.Classifies() {
		return
	}
	name := c.scheduler.config.class(c.ctx, c.method.name, request)
	if name == "" {
		return
	}
	c.class = c.method.classes.of(c.scheduler, c.method, name)
	if c.estimate == nil {
		return
	}
	if e := c.class.learner.Estimate(); e != nil {
		c.estimate, c.delay = e, e.Delay
		if e.Trickle != nil {
			e.Trickle.Earn(c.start)
		}
	}
}

// Classifies reports whether Classify has anything to do.
func (c *Call) Classifies() bool {
	return c.Learns() && c.scheduler.config.class != nil && c.class == nil
}

// learners calls what is to be done with each learner that the call teaches: the method's and its class's.
func (c *Call) learners(teach func(*learn.Learner)) {
	teach(&c.method.learner)
	if c.class != nil {
		teach(&c.class.learner)
	}
}

// ClassStats is what is known of a class of requests of a method: see [WithClass].
type ClassStats struct {
	// Class is the name that the class function gave it, or Other.
	Class string
	// Delay is the age at which a call gets its first hedge now; 0 while the class is being learned.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of what primaries took over the window; 0 while nothing is known.
	P50, P90, P99 time.Duration
	// Choice is what the trigger Auto has in force; zero with another trigger, and while too little is known.
	Choice Choice
}

// stats returns what is known of each class, by name; nil without classes.
func (cs *classes) stats(now time.Time) []ClassStats {
	var rows []ClassStats
	cs.known.Range(func(_, value any) bool {
		c := value.(*class)
		row := ClassStats{Class: c.name}
		if e := c.learner.Estimate(); e != nil {
			row.Delay, row.Choice = e.Delay, newChoice(e)
		}
		d := c.learner.Snapshot(now)
		row.P50, _ = d.Quantile(0.50)
		row.P90, _ = d.Quantile(0.90)
		row.P99, _ = d.Quantile(0.99)
		rows = append(rows, row)
		return true
	})
	slices.SortFunc(rows, func(a, b ClassStats) int { return strings.Compare(a.Class, b.Class) })
	return rows
}
