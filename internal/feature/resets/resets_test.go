package resets_test

import (
	"sort"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/stats"
)

// none is the report of a target without a limit.
var none = stats.Resets{Mode: stats.ResetsUnlimited}

// server is a target with losers at a rate, all of which can be left, and a server that may cut its connection.
type server struct {
	rules resets.Resets
	now   time.Time
	sent  []time.Time // resets, since the last cut
	cuts  int
}

func newServer() *server { return &server{now: time.Unix(1_000_000_000, 0)} }

// serves makes a number of losers each second, for a while, and cuts the connection when cut says so.
func (s *server) serves(t *testing.T, d time.Duration, losers int, says resets.Cut, cut func(s *server) bool) {
	t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(time.Second / time.Duration(losers))
		if s.rules.Lost(1, 1, s.now) != 0 {
			s.rules.LeftEnded()
		} else {
			s.sent = append(s.sent, s.now)
			for s.now.Sub(s.sent[0]) > time.Minute {
				s.sent = s.sent[1:]
			}
		}
		if cut(s) {
			s.cuts++
			s.sent = nil
			s.rules.Cut(says, s.now, s.now)
		}
	}
}

// within counts the resets of the last d, which is a minute at most.
func (s *server) within(d time.Duration) int {
	first := sort.Search(len(s.sent), func(i int) bool { return s.now.Sub(s.sent[i]) < d })
	return len(s.sent) - first
}

func over(n int, per time.Duration) func(*server) bool {
	return func(s *server) bool { return s.within(per) > n }
}

// In TestResets_CalmIsKept servers count resets over different times. They cut a connection once in ten minutes at most.
func TestResets_CalmIsKept(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range []struct {
		name   string
		n      int
		per    time.Duration
		losers int
	}{
		{"400 a minute", 400, time.Minute, 50},
		{"400 a minute, losers seldom", 400, time.Minute, 8},
		{"25 in a second", 25, time.Second, 45},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer()
			s.serves(t, 2*time.Minute, tc.losers, resets.EnhanceYourCalm, over(tc.n, tc.per))
			if got := s.rules.Report(s.now); s.cuts != 1 || got.Until.Sub(got.Since) != 10*time.Minute {
				t.Errorf("%d cuts in two minutes, %+v", s.cuts, got)
			}
			hours := longtest.Size(2, 24)
			s.serves(t, time.Duration(hours)*time.Hour, tc.losers, resets.EnhanceYourCalm, over(tc.n, tc.per))
			if s.cuts < 2 || s.cuts > 1+6*hours {
				t.Errorf("%d cuts", s.cuts)
			}
			s.now = s.now.Add(10 * time.Minute) // without hedges
			if got := s.rules.Report(s.now); got != none {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestResets_WithResetLimit never sends more than the limit in any time.
func TestResets_WithResetLimit(t *testing.T) {
	longtest.Simulation(t)
	for _, l := range []resets.Limit{{N: 0, Per: time.Minute}, {N: 1, Per: time.Second}, {N: 2, Per: time.Minute}, {N: 3, Per: time.Minute}, {N: 25, Per: time.Second}, {N: 400, Per: time.Minute}} {
		s := newServer()
		s.rules.SetLimit(&l, s.now)
		most := 0
		s.serves(t, 10*l.Per, 200, resets.EnhanceYourCalm, func(s *server) bool {
			most = max(most, s.within(l.Per))
			return false
		})
		if most > l.N || l.N > 0 && most < (l.N+1)/2 {
			t.Errorf("%+v: %d resets", l, most)
		}
		if got := s.rules.Report(s.now); got.Limit != l.N || got.Per != l.Per {
			t.Errorf("%+v: %+v", l, got)
		}
	}
}

// TestResets_NoReasonTeachesNothing cuts connections without a reason: no limit follows, and no call is repeated.
func TestResets_NoReasonTeachesNothing(t *testing.T) {
	longtest.Simulation(t)
	s := newServer()
	s.serves(t, time.Hour, 50, resets.NoReason, func(s *server) bool {
		if got := s.rules.Report(s.now); got != none {
			t.Fatalf("%+v", got)
		}
		return s.within(time.Minute) > 400
	})
	if s.rules.Cut(resets.NoReason, s.now, s.now) {
		t.Error("a cut without a reason is blamed on resets")
	}
	s.rules.SetLimit(&resets.Limit{N: 1000, Per: time.Minute}, s.now)
	if !s.rules.Cut(resets.NoReason, s.now, s.now) {
		t.Error("a cut is not blamed on resets though the limit is known")
	}
}

// In TestResets_OneCutIsNotedOnce the calls of one cut fail one after the other.
func TestResets_OneCutIsNotedOnce(t *testing.T) {
	longtest.Simulation(t)
	s := newServer()
	s.serves(t, 30*time.Second, 10, resets.None, func(*server) bool { return false })
	began, first := s.now, stats.Resets{}
	for n := range 50 {
		if !s.rules.Cut(resets.EnhanceYourCalm, began, s.now) {
			t.Error("not blamed on resets")
		}
		if got := s.rules.Report(s.now); n == 0 {
			first = got
		} else if got != first {
			t.Fatalf("%+v, was %+v", got, first)
		}
		s.now = s.now.Add(time.Second)
	}
}

// TestResets_AnUpdateForgetsNothing sets WithResetLimit and takes it away.
func TestResets_AnUpdateForgetsNothing(t *testing.T) {
	longtest.Simulation(t)
	s := newServer()
	s.serves(t, time.Minute, 50, resets.EnhanceYourCalm, over(400, time.Minute))
	learned := s.rules.Report(s.now)
	s.rules.SetLimit(&resets.Limit{N: 7, Per: time.Second}, s.now)
	if got := s.rules.Report(s.now); got.Limit != 7 {
		t.Errorf("with the option: %+v", got)
	}
	s.rules.SetLimit(nil, s.now)
	if got := s.rules.Report(s.now); got != learned || learned.Until.IsZero() {
		t.Errorf("without it again: %+v, was %+v", got, learned)
	}
	if !s.rules.Low(s.now) {
		t.Error("the limit is not in force")
	}
}

// TestResets_ASnapshotHoldsForMinutes takes over a time that never ends, as a forged snapshot may have it.
func TestResets_ASnapshotHoldsForMinutes(t *testing.T) {
	longtest.Simulation(t)
	s := newServer()
	s.rules.Restore(resets.Calm{Since: s.now, Until: s.now.Add(1e6 * time.Hour)}, s.now)
	if got := s.rules.Report(s.now); got.Until != s.now.Add(10*time.Minute) || !s.rules.Spent(s.now) {
		t.Errorf("%+v", got)
	}
	s.now = s.now.Add(10 * time.Minute)
	if got := s.rules.Report(s.now); got != none || s.rules.Low(s.now) {
		t.Errorf("ten minutes later: %+v", got)
	}
}

// TestResets_Watching follows a failure with the words of a cut: attempts are watched for minutes, and only if there were
// resets.
func TestResets_Watching(t *testing.T) {
	longtest.Simulation(t)
	s := newServer()
	cut := status.Error(codes.Unavailable, `connection error: desc = "error reading from server: EOF"`)
	if s.rules.Suspects(cut, s.now) || s.rules.Watches(s.now) {
		t.Error("suspects a cut without resets")
	}
	s.rules.Lost(1, 0, s.now)
	if s.rules.Suspects(status.Error(codes.Unavailable, "no"), s.now) || s.rules.Watches(s.now) {
		t.Error("suspects other words")
	}
	if !s.rules.Suspects(cut, s.now) || s.rules.Watches(s.now) {
		t.Error("does not suspect a cut, or watches unasked")
	}
	if s.rules.Watch(s.now); !s.rules.Watches(s.now) || s.rules.Watches(s.now.Add(10*time.Minute)) {
		t.Error("does not watch for ten minutes")
	}
	if s.rules.Suspects(cut, s.now.Add(2*time.Minute)) {
		t.Error("suspects a cut long after the last reset")
	}
}

// TestCutOf goes through errors as grpc-go has them.
func TestCutOf(t *testing.T) {
	const read = `connection error: desc = "error reading from server: `
	calm := "closing transport due to: " + read + `EOF", received prior goaway: code: ENHANCE_YOUR_CALM`
	for _, tc := range []struct {
		code codes.Code
		text string
		want resets.Cut
	}{
		{codes.Unavailable, calm, resets.EnhanceYourCalm},
		{codes.Unavailable, calm + `, debug data: "Maximum number of RST frames reached"`, resets.EnhanceYourCalm},
		{codes.Unavailable, calm + `, debug data: "too_many_pings"`, resets.NoReason},
		{codes.Unavailable, "closing transport due to: " + read + `EOF", received prior goaway: code: NO_ERROR, debug data: "code: ENHANCE_YOUR_CALM"`, resets.NoReason},
		{codes.Unavailable, "closing transport due to: " + read + `EOF", received prior goaway: code: NO_ERROR, debug data: ", received prior goaway: code: ENHANCE_YOUR_CALM"`, resets.NoReason},
		{codes.Unavailable, read + `EOF"`, resets.NoReason},
		{codes.Unavailable, "error reading from server: EOF", resets.NoReason},
		{codes.Unavailable, read + `read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer"`, resets.NoReason},
		{codes.Unavailable, "upstream: " + read + `EOF"`, resets.None},
		{codes.Unavailable, "upstream: " + calm, resets.None},
		{codes.Internal, read + `EOF"`, resets.None},
		{codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM", resets.None},
		{codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`, resets.None},
		{codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`, resets.None},
		{codes.Unavailable, "connection reset by peer", resets.None},
		{codes.NotFound, "ENHANCE_YOUR_CALM", resets.None},
	} {
		if got := resets.CutOf(status.Error(tc.code, tc.text)); got != tc.want {
			t.Errorf("%v, %s: %v, want %v", tc.code, tc.text, got, tc.want)
		}
	}
}
