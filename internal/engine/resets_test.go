package engine_test

import (
	"sort"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/longtest"
)

// server is a target with losers at a rate, all of which can be left, and a server that may cut its connection.
type server struct {
	rules engine.ResetRules
	now   time.Time
	sent  []time.Time // resets, since the last cut
	cuts  int
}

func newServer() *server { return &server{now: time.Unix(1_000_000_000, 0)} }

// serves has losers come for a while, a number each second, and the connection be cut when cut says so.
func (s *server) serves(t *testing.T, d time.Duration, losers int, certain bool, cut func(s *server) bool) {
	t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(time.Second / time.Duration(losers))
		if s.rules.Lose(s.now) {
			s.sent = append(s.sent, s.now)
			for s.now.Sub(s.sent[0]) > time.Minute {
				s.sent = s.sent[1:]
			}
		}
		if cut(s) {
			s.cuts++
			s.sent = nil
			s.rules.Cut(certain, s.now)
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

// TestResets_ALimitIsLearned has servers count resets in different times. After the first cut there is none for two minutes,
// and few in a day, because the limit is tried ever more seldom.
func TestResets_ALimitIsLearned(t *testing.T) {
	for _, tc := range []struct {
		name   string
		n      int
		per    time.Duration
		losers int
	}{
		{"400 a minute", 400, time.Minute, 50},
		{"400 a minute, losers seldom", 400, time.Minute, 8},
		{"200 in 30 s", 200, 30 * time.Second, 45},
		{"25 in a second", 25, time.Second, 45},
		{"100 in 10 s", 100, 10 * time.Second, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer()
			s.serves(t, 2*time.Minute, tc.losers, true, over(tc.n, tc.per))
			if s.cuts != 1 {
				t.Errorf("%d cuts in two minutes, want 1", s.cuts)
			}
			if got := s.rules.Read(s.now); got.Mode != engine.ResetsLearned || got.Limit < 1 || !strings.Contains(got.Why, "ENHANCE_YOUR_CALM") {
				t.Errorf("%+v", got)
			}
			s.serves(t, time.Duration(longtest.Size(2, 24))*time.Hour, tc.losers, true, over(tc.n, tc.per))
			t.Logf("%d cuts, %+v", s.cuts, s.rules.Read(s.now))
			if s.cuts > 8 {
				t.Errorf("%d cuts", s.cuts)
			}
		})
	}
}

// TestResets_ASilentServerIsFoundOut has a server cut connections without a reason.
func TestResets_ASilentServerIsFoundOut(t *testing.T) {
	s := newServer()
	s.serves(t, time.Hour, 50, false, over(400, time.Minute))
	t.Logf("%d cuts in an hour, %+v", s.cuts, s.rules.Read(s.now))
	if got := s.rules.Read(s.now); got.Mode != engine.ResetsLearned || s.cuts > 15 {
		t.Errorf("%d cuts in an hour, %+v", s.cuts, got)
	}
}

// TestResets_CutsByChance has connections end at fixed times whatever is sent. Limits are rare, and none lasts for more than
// a minute.
func TestResets_CutsByChance(t *testing.T) {
	for _, every := range []time.Duration{7 * time.Second, 20 * time.Second, 50 * time.Second, 60 * time.Second, 75 * time.Second, 100 * time.Second, 150 * time.Second, 5 * time.Minute, time.Hour} {
		t.Run(every.String(), func(t *testing.T) {
			s := newServer()
			next := s.now.Add(every)
			var limited, longest, all time.Duration
			last := s.now
			s.serves(t, 6*time.Hour, 9, false, func(s *server) bool {
				if s.rules.Detaches(s.now) {
					limited += s.now.Sub(last)
					all += s.now.Sub(last)
				} else {
					limited = 0
				}
				longest, last = max(longest, limited), s.now
				if s.now.Before(next) {
					return false
				}
				next = next.Add(every)
				return true
			})
			t.Logf("limited for %v of 6h, for %v on end", all, longest)
			if longest > time.Minute {
				t.Errorf("limited for %v on end", longest)
			}
		})
	}
}

// TestResets_WithResetLimit never sends more than the limit in any time.
func TestResets_WithResetLimit(t *testing.T) {
	for _, l := range []engine.ResetLimit{{N: 0, Per: time.Minute}, {N: 1, Per: time.Second}, {N: 2, Per: time.Minute}, {N: 3, Per: time.Minute}, {N: 25, Per: time.Second}, {N: 400, Per: time.Minute}} {
		s := newServer()
		s.rules.Start(&l, s.now)
		most := 0
		s.serves(t, 10*l.Per, 200, true, func(s *server) bool {
			most = max(most, s.within(l.Per))
			return false
		})
		if most > l.N || l.N > 0 && most < (l.N+1)/2 {
			t.Errorf("%+v: %d resets", l, most)
		}
		if got := s.rules.Read(s.now); got.Mode != engine.ResetsSet || got.Limit != l.N || got.Per != l.Per {
			t.Errorf("%+v: %+v", l, got)
		}
	}
}

// TestCutOff goes through errors as grpc-go has them.
func TestCutOff(t *testing.T) {
	for _, tc := range []struct {
		code         codes.Code
		text         string
		cut, certain bool
	}{
		{codes.Unavailable, `closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "Maximum number of RST frames reached"`, true, true},
		{codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM", true, true},
		{codes.Unavailable, `closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`, false, false},
		{codes.Unavailable, `connection error: desc = "error reading from server: EOF"`, true, false},
		{codes.Unavailable, `connection error: desc = "error reading from server: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer"`, true, false},
		{codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`, false, false},
		{codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`, false, false},
		{codes.ResourceExhausted, "quota", false, false},
		{codes.NotFound, "ENHANCE_YOUR_CALM", false, false},
		{codes.Unavailable, "no healthy upstream", false, false},
		{codes.DeadlineExceeded, "context deadline exceeded", false, false},
	} {
		if cut, certain := engine.CutOff(status.Error(tc.code, tc.text)); cut != tc.cut || certain != tc.certain {
			t.Errorf("%v, %s: %v, %v", tc.code, tc.text, cut, certain)
		}
	}
}
