// Package feature has the two doors by which a feature plugs into calls: a gate says whether a hedge that is due may be sent, and an
// observer hears what became of attempts and calls. The settings of a method hold its gates and observers; a feature that is off
// is not among them.
package feature

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// A Gate says whether a hedge that is due may be sent. Gates are asked in the order of their list, until one does not let the
// hedge pass. A hedge that was held back comes again, so a gate may be asked about one hedge more than once. It may be called
// concurrently, for different calls.
type Gate interface {
	Admit(*Due) Verdict
}

type GateFunc func(*Due) Verdict

func (g GateFunc) Admit(d *Due) Verdict { return g(d) }

// A Payer is a gate that takes something for a hedge. Refund returns it when the hedge is not sent after all.
type Payer interface {
	Gate
	Refund(*CallState)
}

// A PartPayer is a Payer that returns part of what it took for hedge n when the hedge's server
// turned it away.
type PartPayer interface {
	Payer
	TurnedAway(c *CallState, n int)
}

// An Observer hears how calls ended, once of each. It may be called concurrently, for different calls, and keeps neither the call
// nor the end.
type Observer interface {
	Ended(*CallState, *End)
}

// Observers that want to hear more have one of these methods too.
type (
	// HedgeObserver is told of each hedge that all gates have let pass.
	HedgeObserver interface{ Admitted(*Due) }
	// FailureObserver is told, once, of each attempt that has failed while its caller waited, and what its server said.
	FailureObserver interface {
		Failed(race.EndKind, race.Pushback)
	}
)

// Conn is what is asked of the connection that a call uses. *grpc.ClientConn is one.
type Conn interface {
	GetState() connectivity.State
}

// CallState is what features know of a call, and what they keep of it until it ends.
type CallState struct {
	Context        context.Context
	Target, Method string
	Conn           Conn // nil: one that is always ready
	Start          time.Time
	Delay          time.Duration // after which the first hedge is due

	Learned   *learn.Learner  // of its method
	Class     *learn.Learner  // of the class of its request; nil: none
	Estimate  *learn.Estimate // what the delay was taken from; nil if it was not learned
	MaxHedges int             // the most that the trigger or the policy wants

	OffWire bool // its attempts are no streams of its target's connections
	Learns  bool // its latency is of interest
	Busy    bool // this process was short of processor time when a hedge was due: the latency is not the server's
	Off     bool // its caller has switched it off: the trigger learns nothing of it

	Payment   Payment
	TookReset bool // the last hedge that was considered has taken one of its target's resets
	Drawn     Drawn
	Ticket    Ticket
	Record    *place.Record // where its attempts have been; nil where no policy asks
	Group     Group
}

func (c *CallState) Age() time.Duration { return time.Since(c.Start) }

// HedgeContext returns the context of a hedge. It may be called from any goroutine, once the primary's context is known.
func (c *CallState) HedgeContext(ctx context.Context) context.Context {
	if c.Record == nil {
		return ctx
	}
	return c.Record.Hedge(ctx)
}

// Learner returns the learner that gives the call's delay.
func (c *CallState) Learner() *learn.Learner { return cmp.Or(c.Class, c.Learned) }

// Teach calls teach with each learner that learns from the call: the method's and the class's.
func (c *CallState) Teach(teach func(*learn.Learner)) {
	teach(c.Learned)
	if c.Class != nil {
		teach(c.Class)
	}
}

// Median is the median latency of the class, or the method; 0 while it is being learned.
func (c *CallState) Median() time.Duration {
	return cmp.Or(c.Learner().Median(), c.Learned.Median())
}

// Drawn is the draw for the last hedge that was considered.
type Drawn struct {
	Turn int
	Send bool
}

// Draw draws whether a hedge that is due is sent, by the estimate's probability. A hedge that is considered again keeps its draw.
func (c *CallState) Draw(turn int) bool {
	if turn != c.Drawn.Turn {
		e := c.Estimate
		c.Drawn = Drawn{turn, e == nil || e.Probability >= 1 || c.Learned.Draw(e.Probability)}
	}
	return c.Drawn.Send
}

// Ticket is a number that the guard has drawn for a hedge. The hedge may be sent if the number is below the share.
type Ticket struct {
	Of    int // the hedge; 0: none
	Value float64
}

type Group uint8

const (
	NoGroup Group = iota
	Hedgeable
	Unhedged
)

type Due struct {
	*CallState
	N    int // 1 is the first
	Turn int // how many were considered, this one included
	Now  time.Time
	// Slow says that the hedge is due because the call is slow. If not, an answer was rejected, or the call is sent again:
	// see race.Event.
	Slow bool
	Busy bool // this process is short of processor time, so the answer may lie unread
	// OneConnection says that without a policy of package balancer, all hedges use the connection
	// that their primaries use.
	OneConnection bool
	Report        *race.Report // what has happened so far; Repeated is of the hedge that is due
}

func (d *Due) Age() time.Duration { return d.Now.Sub(d.Start) }

// Verdict is what a gate says. The zero Verdict lets the hedge pass.
type Verdict struct {
	Event  race.EventKind // Refused: the call gets no more hedges. HeldBack: the gates are asked again. Skipped: the next one may be sent
	Reason stats.Reason   // what is counted; NoReason: nothing
	Until  time.Duration  // HeldBack: the age of the call at which the gates are asked again; 0: soon
}

var Pass Verdict

// Never says that the call gets no more hedges.
func Never(why stats.Reason) Verdict { return Verdict{Event: race.Refused, Reason: why} }

func Later(why stats.Reason) Verdict { return Verdict{Event: race.HeldBack, Reason: why} }

// Until says that the hedge is due at the given age of the call. It is not counted as held back.
func Until(age time.Duration) Verdict { return Verdict{Event: race.HeldBack, Until: age} }

// Skip leaves the hedge out. The next one may be sent.
func Skip(why stats.Reason) Verdict { return Verdict{Event: race.Skipped, Reason: why} }

// If is the verdict if the condition holds. Otherwise the hedge passes.
func (v Verdict) If(holds bool) Verdict {
	if holds {
		return v
	}
	return Pass
}

// End is how a call ended for its caller: a stream with its first message, or without one.
type End struct {
	Race    *race.Report // nil if no hedge raced against the primary
	Headers bool         // the race was for response headers, which are what its attempts ended with
	Err     error
	Age     time.Duration // at which the caller had the outcome
	Known   bool          // the caller waited for it from the start; not where the caller of a stream asked late, or an attempt panicked
	Gone    bool          // the caller had gone

	Primary Primary
}

type Primary struct {
	Known     bool // it has ended, and how is known
	CutShort  bool // it had not answered at Age, when a hedge won; of a stream, with the first message
	Err       error
	Age       time.Duration // of the call
	Gone      bool          // the caller had gone by then
	AskedLate bool          // it may have ended long before the caller of the stream asked
}

func (p *Primary) Answered() bool {
	return p.Known && (p.Err == nil || !p.Gone && !p.AskedLate && rpc.Answers.HasStatus(p.Err))
}
