package interceptor_test

import (
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/model"
)

func drawStory(seed uint64) story {
	r := model.New(seed, 1)
	s := story{seed: seed, policy: r.IntN(3) > 0, attempts: 2 + r.IntN(4), delay: ms + r.Within(20*ms)}
	if s.policy && r.IntN(4) == 0 {
		s.delay = 0
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if s.policy && r.IntN(2) == 0 || !s.policy && !isAnswer(code) {
			s.nonFatal = append(s.nonFatal, code)
		}
	}
	s.throttle, s.most, s.ratio = r.IntN(3) > 0, 1+r.IntN(8), 1+r.IntN(1500)
	for range 1 + r.IntN(4) {
		c := schedule{}
		for range s.attempts {
			st := step{after: r.Within(100 * ms), code: modelCodes[r.IntN(len(modelCodes))]}
			if len(s.nonFatal) > 0 && r.IntN(2) == 0 {
				st.code = s.nonFatal[r.IntN(len(s.nonFatal))]
			}
			switch r.IntN(8) {
			case 0, 1:
				st.pushback = []string{strconv.Itoa(r.IntN(60))}
			case 2:
				st.pushback = []string{[]string{"-1", "", "soon", "9999999999", "1.5"}[r.IntN(5)]}
			case 3:
				st.pushback = []string{"1", "2"}[:1+r.IntN(2)]
			}
			st.early = s.delay > 0 && st.code == codes.OK && r.IntN(4) == 0
			c.steps = append(c.steps, st)
		}
		if r.IntN(4) == 0 {
			c.deadline = r.Within(150 * ms)
		}
		if r.IntN(5) == 0 {
			c.cancel = r.Within(150 * ms)
		}
		s.calls = append(s.calls, c)
	}
	s.reads = r.IntN(2) == 0
	return s
}

// TestConfigModel draws stories of service configs, throttles and pushbacks, plays each in virtual
// time, and checks it against a model that has neither goroutines nor locks.
func TestConfigModel(t *testing.T) {
	model.Each(t, model.Counts{Short: 500, Long: 5_000}, 1, func(*testing.T) func(*testing.T, uint64) {
		return func(t *testing.T, seed uint64) {
			s := drawStory(seed)
			for _, d := range doors {
				scheduler := s.scheduler(t)
				tokens := 1000 * s.most
				for n, c := range s.calls {
					s.earn(t, scheduler)
					before := scheduler.Stats()
					want := s.expect(d, c, tokens)
					s.play(t, s.byStub(d, n, scheduler), n, want)
					s.checkStats(t, scheduler, n, want, before)
					tokens = want.tokens
					if t.Failed() {
						t.Fatalf("by %s: story %+v", d, s)
					}
				}
			}
		}
	})
}

// earn lets the budget pay for the next call, by calls that the throttle does not count.
func (s story) earn(t *testing.T, scheduler *hedge.Scheduler) {
	for range 30 {
		if s.policy {
			return // it costs nothing
		}
		st := &stub{steps: []step{{code: codes.NotFound}}}
		if err := st.call(t.Context(), scheduler, wrapperspb.Int64(0)); status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
	}
}
