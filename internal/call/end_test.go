package call_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestEnd_HedgedCallsWithoutAnAnswer ends hedged calls without an answer. A call that fails, or
// misses its deadline, shows that hedges do not pay: the trigger expects less of them. A call that its
// caller gave up shows nothing.
func TestEnd_HedgedCallsWithoutAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		code   codes.Code
		gone   bool
		gaveUp bool
	}{
		"failed":          {codes.Unavailable, false, false},
		"missed deadline": {codes.DeadlineExceeded, true, false},
		"given up":        {codes.Canceled, true, true},
	} {
		end := func(c *call.Call, age time.Duration) {
			err := status.Error(tc.code, "")
			r := race.State{Hedges: 1, Err: err, DecidedAt: age, DeliveredAt: age}
			r.CallerGone, r.GaveUp, r.GoneAt = tc.gone, tc.gaveUp, age
			r.Attempts[0].EndedAt, r.Attempts[0].Event = age, race.Event{Kind: race.Ended, End: race.NonFatal, Err: err}
			r.Attempts[1] = r.Attempts[0]
			r.Attempts[1].SentAt = c.Delay
			c.Ended(&r)
		}
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.All(t)
			learn := func() {
				for n := range 2000 {
					latency := 10 * ms
					if n%20 == 0 {
						latency = 500 * ms
					}
					begin(t.Context(), s, target, method).Learner().PrimaryEnded(time.Now(), latency, true)
					time.Sleep(ms)
				}
			}
			learn()
			for range 100 {
				end(begin(t.Context(), s, target, method), 400*ms)
			}
			learn()
			if kept := s.Methods()[0].Choice.Kept; kept > 0.5 != tc.gaveUp {
				t.Errorf("%.2f of the predicted savings are kept", kept)
			}
		})
	}
}
