package interceptor_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/model"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// schedule is one call as the model tests draw it: what each attempt would do, and what the caller does.
type schedule struct {
	delay    time.Duration
	hedges   int
	paid     bool // the budget pays
	reads    bool // the method only reads
	steps    []step
	deadline time.Duration // 0: none
	cancel   time.Duration // 0: never
	judged   bool          // some answers are poor
}

var modelCodes = []codes.Code{
	codes.OK, codes.OK, codes.OK,
	codes.NotFound, codes.InvalidArgument, codes.PermissionDenied,
	codes.Unavailable, codes.Unavailable, codes.Internal, codes.ResourceExhausted,
	codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Aborted, codes.DataLoss,
}

func drawSchedule(seed uint64) schedule {
	r := model.New(seed, 0)
	s := schedule{
		delay:  time.Millisecond + r.Within(20*time.Millisecond),
		hedges: r.IntN(5),
		paid:   r.IntN(5) > 0,
	}
	for range s.hedges + 1 {
		st := step{after: r.Within(100 * time.Millisecond), code: modelCodes[r.IntN(len(modelCodes))]}
		if r.IntN(40) == 0 {
			st.panics = fmt.Sprintf("panic of schedule %d", seed)
		}
		s.steps = append(s.steps, st)
	}
	if r.IntN(3) == 0 {
		s.deadline = r.Within(120 * time.Millisecond)
	}
	if r.IntN(4) == 0 {
		s.cancel = r.Within(120 * time.Millisecond)
	}
	s.reads = r.IntN(2) == 0
	s.judged = r.IntN(2) == 0
	for n := range s.steps {
		s.steps[n].poor = s.judged && r.IntN(2) == 0 && isAnswer(s.steps[n].code)
	}
	return s
}

// verdict is what the rules say must come of a schedule.
type verdict struct {
	at     time.Duration
	winner int // whose outcome the caller gets
	code   codes.Code
	panics any
	sent   int             // hedges
	sentAt []time.Duration // of each attempt
	poor   int             // poor answers until then
}

// expect plays a schedule by the rules, event by event, without a goroutine or a clock.
func (s schedule) expect() verdict {
	type event struct {
		at      time.Duration
		attempt int
		kind    string
	}
	var events []event
	add := func(e event) {
		events = append(events, e)
		slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	}
	add(event{s.steps[0].after, 0, "end"})
	if s.paid && s.hedges > 0 {
		add(event{s.delay, 1, "send"})
	}
	for _, e := range []event{{s.deadline, int(codes.DeadlineExceeded), "gone"}, {s.cancel, int(codes.Canceled), "gone"}} {
		if e.at > 0 {
			add(e)
		}
	}
	v := verdict{sentAt: []time.Duration{0}}
	inFlight, primaryFailed := 1, false
	judged := s.judged && s.paid && s.hedges > 0
	calledFor := false          // a poor answer called for the next hedge
	reply, poorStatus := -1, -1 // the first of each
	callFor := func(at time.Duration) {
		if v.sent < s.hedges {
			events = slices.DeleteFunc(events, func(e event) bool { return e.kind == "send" })
			add(event{at, v.sent + 1, "send"})
			calledFor = true
		}
	}
	for {
		e := events[0]
		events = events[1:]
		v.at = e.at
		switch e.kind {
		case "send":
			v.sent++
			v.sentAt = append(v.sentAt, e.at)
			inFlight++
			calledFor = false
			add(event{e.at + s.steps[e.attempt].after, e.attempt, "end"})
			if e.attempt < s.hedges {
				add(event{e.at + s.delay, e.attempt + 1, "send"})
			}
		case "gone": // rule 4
			switch {
			case reply >= 0:
				v.winner, v.code = reply, codes.OK
			case poorStatus >= 0:
				v.winner, v.code = poorStatus, s.steps[poorStatus].code
			case !primaryFailed:
				v.code = codes.Code(e.attempt)
			}
			return v
		case "end":
			st := s.steps[e.attempt]
			inFlight--
			switch {
			case st.panics != nil: // rule 9
				v.winner, v.panics = e.attempt, st.panics
				return v
			case judged && st.poor && st.code == codes.OK:
				v.poor++
				if reply < 0 {
					reply = e.attempt
				}
				callFor(e.at)
			case st.code == codes.OK: // rule 2
				v.winner, v.code = e.attempt, codes.OK
				return v
			case judged && st.poor && (e.attempt == 0 || s.reads):
				v.poor++
				if poorStatus < 0 {
					poorStatus = e.attempt
				}
				callFor(e.at)
			case isAnswer(st.code) && (e.attempt == 0 || s.reads) && reply < 0: // rule 2
				v.winner, v.code = e.attempt, st.code
				return v
			}
			if e.attempt == 0 {
				primaryFailed, v.code = true, st.code
			}
			if primaryFailed && inFlight == 0 && !calledFor { // rules 2 and 3
				switch {
				case reply >= 0:
					v.winner, v.code = reply, codes.OK
				case poorStatus >= 0:
					v.winner, v.code = poorStatus, s.steps[poorStatus].code
				}
				return v
			}
		}
	}
}

func isAnswer(c codes.Code) bool {
	switch c {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}

func each(t *testing.T, perConnection int, counts model.Counts, play func(*testing.T) func(*testing.T, schedule)) {
	model.Each(t, counts, perConnection, func(t *testing.T) func(*testing.T, uint64) {
		one := play(t)
		return func(t *testing.T, seed uint64) { one(t, drawSchedule(seed)) }
	})
}

// TestModel draws schedules by the hundred, or with -hedge.long by the ten thousand, plays each through the interceptor in
// virtual time, and checks the rules 1 to 11 on it against a model that has neither goroutines nor locks.
func TestModel(t *testing.T) {
	each(t, 1, model.Counts{Short: 500, Long: 5_000}, func(*testing.T) func(*testing.T, schedule) {
		return func(t *testing.T, s schedule) {
			st := &stub{steps: s.steps}
			scheduler := s.scheduler(t)
			playSchedule(t, s, played{st.sent, func(ctx context.Context, opts ...grpc.CallOption) (int, error) {
				reply := wrapperspb.Int64(0)
				err := st.call(ctx, scheduler, reply, opts...)
				return int(reply.Value), err
			}}, scheduler)
		}
	})
}

// TestModel_OverGRPC does the same over real gRPC, in memory, where the attempts are the server's.
func TestModel_OverGRPC(t *testing.T) {
	const perConnection = 100
	each(t, perConnection, model.Counts{Short: 200, Long: 1_000}, func(t *testing.T) func(*testing.T, schedule) {
		var scheduler *hedge.Scheduler // of the schedule being played
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		conn := cluster.ClientT(t, grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return interceptor.Unary(scheduler)(ctx, method, req, reply, cc, invoker, opts...)
		}))
		testserver.ConnectT(t, conn)
		client := testpb.NewTestServiceClient(conn)
		return func(t *testing.T, s schedule) {
			for i := range s.steps { // no attempt of a server's can panic in its client
				s.steps[i].panics = nil
			}
			scheduler = s.scheduler(t)
			cluster.Reset()
			cluster.SetScript(s.script)
			playSchedule(t, s, played{
				func() (sent []stubAttempt) {
					for _, r := range cluster.Records() {
						sent = append(sent, stubAttempt{number: r.Number, began: r.Arrival, ended: r.Ended})
					}
					return sent
				},
				func(ctx context.Context, opts ...grpc.CallOption) (int, error) {
					reply, err := client.Unary(ctx, &testpb.Request{Id: 1}, opts...)
					return int(reply.GetAttempt()), err
				},
			}, scheduler)
		}
	})
}

func (s schedule) script(a testserver.Attempt) testserver.Plan {
	st := s.steps[a.Number]
	number := metadata.Pairs("attempt", strconv.Itoa(a.Number))
	return testserver.Plan{Delay: st.after, Code: st.code, Message: fmt.Sprint("attempt ", a.Number), Header: number, Trailer: number}
}

// played is how a schedule is played: the one call, which returns the attempt that its reply is from, and
// afterwards what became of the attempts.
type played struct {
	sent func() []stubAttempt
	call func(context.Context, ...grpc.CallOption) (int, error)
}

func (s schedule) scheduler(t *testing.T) *hedge.Scheduler {
	opts := []hedge.Option{hedge.WithMaxHedges(s.hedges), hedge.WithGuard(false)} // what fails here means nothing
	if !s.paid {
		opts = append(opts, hedge.WithBudgetPercent(0))
	}
	if s.reads {
		opts = append(opts, hedge.WithReadOnlyMethods("/*/*"))
	}
	if s.judged {
		var poor []int64
		for n, st := range s.steps {
			if st.poor {
				poor = append(poor, int64(n))
			}
		}
		opts = append(opts, goodBut(poor...))
	}
	return hedgetest.Fixed(t, s.delay, opts...)
}

func playSchedule(t *testing.T, s schedule, p played, scheduler *hedge.Scheduler) {
	want := s.expect()
	ctx := t.Context()
	if s.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.deadline)
		defer cancel()
	}
	if s.cancel > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(s.cancel, cancel).Stop()
	}

	var got outcome
	began := time.Now()
	var panicked any
	func() {
		defer func() { panicked = recover() }()
		got.attempt, got.err = p.call(ctx, grpc.Header(&got.header), grpc.Trailer(&got.trailer),
			grpc.OnFinish(func(e error) {
				got.finished++
				if status.Code(e) != want.code {
					t.Errorf("schedule %+v: OnFinish(%v), want %v", s, e, want.code)
				}
			}))
	}()
	at := time.Since(began)
	if p, ok := panicked.(*hedge.Panic); ok && want.winner > 0 {
		panicked = p.Value
	}

	if at != want.at || panicked != want.panics || panicked == nil && status.Code(got.err) != want.code {
		t.Fatalf("schedule %+v:\nended after %v with %v, panic %v;\nwant after %v with %v, panic %v",
			s, at, got.err, panicked, want.at, want.code, want.panics)
	}
	if panicked == nil {
		checkOneAttempt(t, s, want, got)
	}

	synctest.Wait() // the losers have unwound, without time going on
	sent := p.sent()
	if len(sent) != want.sent+1 {
		t.Fatalf("schedule %+v: %d attempts, want %d", s, len(sent), want.sent+1)
	}
	for n, a := range sent {
		if sentAt := a.began.Sub(began); a.number != n || sentAt != want.sentAt[n] { // rule 11
			t.Errorf("schedule %+v: attempt %d sent after %v", s, a.number, sentAt)
		}
		if ended := a.ended.Sub(began); a.ended.IsZero() || ended > want.at { // rules 7 and 8
			t.Errorf("schedule %+v: attempt %d ended after %v, the call after %v", s, n, ended, want.at)
		}
	}
	checkModelStats(t, s, want, got.err, panicked, scheduler.Stats())
}

// outcome is all that a caller gets from one call.
type outcome struct {
	attempt         int // that the reply is from
	err             error
	header, trailer metadata.MD
	finished        int // how often OnFinish ran
}

// checkOneAttempt checks that all that the caller got comes from the attempt that won: rules 1 and 6.
func checkOneAttempt(t *testing.T, s schedule, want verdict, got outcome) {
	switch {
	case got.err == nil && got.attempt != want.winner:
		t.Errorf("schedule %+v: reply of attempt %d, want %d", s, got.attempt, want.winner)
	case got.err != nil && got.attempt > 0:
		t.Errorf("schedule %+v: failed with the reply of attempt %d", s, got.attempt)
	}
	if got.finished != 1 {
		t.Errorf("schedule %+v: OnFinish ran %d times", s, got.finished)
	}
	number := fmt.Sprint(want.winner)
	// An attempt that was cut short says nothing, unless its server ended it by the same deadline.
	ran := want.at >= want.sentAt[want.winner]+s.steps[want.winner].after // to its end
	for name, md := range map[string]metadata.MD{"header": got.header, "trailer": got.trailer} {
		if values := md.Get("attempt"); !slices.Equal(values, []string{number}) && (ran || values != nil) {
			t.Errorf("schedule %+v: %s %v, want that of attempt %s", s, name, values, number)
		}
	}
}

func checkModelStats(t *testing.T, s schedule, want verdict, err error, panicked any, got stats.Counts) {
	expected := stats.Counts{Calls: 1, Warmup: 1, Hedges: int64(want.sent), PoorAnswers: int64(want.poor)}
	if want.sent > 0 {
		expected.Hedged = 1
		switch {
		case panicked != nil || !isAnswer(status.Code(err)):
		case want.winner > 0:
			expected.HedgeWins = 1
		default:
			expected.PrimaryWins = 1
		}
	}
	if got != expected {
		t.Errorf("schedule %+v:\nstats %+v,\nwant  %+v", s, got, expected)
	}
}
