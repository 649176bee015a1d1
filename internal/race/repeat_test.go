package race_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/race"
)

// cuts repeats every call whose primary fails.
type cuts struct{ policy }

func (*cuts) SuspectCut(error) bool { return true }
func (*cuts) Failure(int, error, race.Seen) race.Event {
	return race.Event{End: race.NonFatal, Cut: true, Repeat: true}
}

type cutEntrant struct{ *entrant }

func (cutEntrant) Seen() race.Seen {
	return race.Seen{Peer: &peer.Peer{Addr: &net.TCPAddr{Port: 1}, LocalAddr: &net.TCPAddr{Port: 2}}}
}

// slowContext takes its time when a child of it is cancelled, as a context with a lock of its own may.
type slowContext struct {
	context.Context
	asked *atomic.Int32
}

func (c slowContext) Value(k any) any {
	if _, ok := k.(*int); ok && c.asked.Add(1) == 2 { // 1: the first hedge's context is made; 2: it is cancelled
		time.Sleep(5 * ms)
	}
	return c.Context.Value(k)
}

// TestRace_ADroppedHedgeAndItsRepetition cuts the primary at 12 ms, while the hedge that was due at 10 ms is prepared. So that
// hedge is dropped, and the call is repeated at once by another one of the same number.
func TestRace_ADroppedHedgeAndItsRepetition(t *testing.T) {
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			e := &entrant{ctx: ctx, primary: 12 * ms, err: errors.New("cut"), began: time.Now(),
				prepare: func(int) bool { time.Sleep(4 * ms); return true },
				run:     func(int) time.Duration { return 20 * ms }}
			var caller context.Context = t.Context()
			if slow {
				caller = slowContext{caller, new(atomic.Int32)}
			}
			plan := plan(10*ms, 1)
			plan.MaxWithRepeat = 1
			var r race.Race
			p := &cuts{policy{hedges: 4}}
			out := r.Run(caller, cancel, plan, p, cutEntrant{e})
			if out.Err != nil || out.Winner == nil {
				t.Errorf("slow=%v: %v: %+v, %+v", slow, time.Since(e.began), out, p.booked)
			}
			time.Sleep(time.Second)
		})
	}
}
