package interceptor_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// scene is a call that is hedged after 10 ms, unless its options change the delay, and its expected
// course.
type scene struct {
	name     string
	opts     []hedge.Option
	config   string // a service config that says all about hedging
	call     []grpc.CallOption
	method   string        // the stub's usual one if it is empty
	request  any           // the same
	deadline time.Duration // 0: none
	cancel   time.Duration // 0: never
	steps    []step
	doors    []door // nil: all

	sent     []time.Duration // when attempts go out
	at       time.Duration   // when the caller has the outcome
	winner   int
	code     codes.Code
	panics   any
	rejected bool // the outcome is
}

// times returns the times in milliseconds.
func times(all ...int) (t []time.Duration) {
	for _, n := range all {
		t = append(t, time.Duration(n)*ms)
	}
	return t
}

// playScenes plays each scene by its doors.
func playScenes(t *testing.T, scenes []scene) {
	for _, sc := range scenes {
		if sc.doors == nil {
			sc.doors = doors
		}
		for _, d := range sc.doors {
			hedgetest.Run(t, sc.name+", "+string(d), func(t *testing.T) {
				scheduler := hedgetest.Fixed(t, 10*ms, append([]hedge.Option{hedge.WithGuard(false)}, sc.opts...)...)
				if sc.config != "" {
					scheduler = hedgetest.New(t, hedge.WithServiceConfig(sc.config), hedge.WithBudgetPercent(400))
				}
				sc.play(t, d, scheduler)
			})
		}
	}
}

func (sc scene) play(t *testing.T, d door, s *hedge.Scheduler) {
	var outcome stats.Outcome
	before := s.Stats()
	c, want := schedule{steps: sc.steps, deadline: sc.deadline, cancel: sc.cancel},
		ending{line: sc.at, at: sc.at, winner: sc.winner, code: sc.code, panics: sc.panics, sent: sc.sent}
	st := &stub{steps: sc.steps, method: sc.method, request: sc.request}
	c.play(t, st.played(d, s, append(sc.call, hedge.Report(&outcome))...), want)
	if time.Sleep(time.Minute); len(st.sent()) != len(sc.sent) {
		t.Error("an attempt was sent after the call")
	}
	got, counts := s.Stats(), before
	want.countRace(&counts)
	if got.Hedges != counts.Hedges || got.Hedged != counts.Hedged || got.HedgeWins != counts.HedgeWins ||
		got.PrimaryWins != counts.PrimaryWins || sc.rejected && got.Rejected == 0 {
		t.Errorf("%+v, want %+v", got, counts)
	}
	if sc.panics == nil && (outcome.Rejected != sc.rejected || outcome.Winner != sc.winner ||
		outcome.Attempts != len(sc.sent)) {
		t.Errorf("reported: %+v", outcome)
	}
}

// countRace adds the counts of the race to c.
func (e ending) countRace(c *stats.Counts) {
	c.Hedges += int64(len(e.sent) - 1)
	if len(e.sent) == 1 {
		return
	}
	c.Hedged++
	switch {
	case e.panics != nil || e.at == e.line && !isAnswer(e.code):
	case e.winner > 0:
		c.HedgeWins++
	default:
		c.PrimaryWins++
	}
}
