package stream_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/model"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// plan is what one attempt does: its first message, or its end if it has no message, comes after a time; the
// others follow at an interval; then it ends with a code, or stalls.
type plan struct {
	first    time.Duration
	messages int
	interval time.Duration
	code     codes.Code
	stalls   bool
	rejected bool // its first message, or its end, in a schedule with WithAcceptable
}

// schedule is one call as TestModel draws it: what each attempt would do, and what the caller does.
type schedule struct {
	seed        uint64
	delay       time.Duration
	plans       []plan
	header      bool          // the caller calls Header first
	late        time.Duration // when the caller comes for what it first waits for
	deadline    time.Duration // 0: none
	abandons    int           // after how many messages the caller cancels; 0: never
	headerFirst bool          // the servers send headers at once
	reads       bool          // the method only reads
	judged      bool          // some answers are rejected
}

func drawSchedule(seed uint64) schedule {
	r := model.New(seed, 0)
	s := schedule{
		seed:        seed,
		delay:       2*ms + r.Within(20*ms),
		header:      r.IntN(4) == 0,
		headerFirst: r.IntN(4) == 0,
	}
	for range r.IntN(5) + 1 {
		p := plan{first: r.Within(100 * ms), interval: r.Within(10 * ms), messages: r.IntN(6)}
		switch r.IntN(5) {
		case 0:
			p.code = []codes.Code{codes.NotFound, codes.PermissionDenied, codes.OutOfRange}[r.IntN(3)]
		case 1:
			p.code = []codes.Code{codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.Unknown}[r.IntN(4)]
		case 2:
			p.stalls = r.IntN(2) == 0 && p.messages > 0
		}
		s.plans = append(s.plans, p)
	}
	if r.IntN(3) == 0 {
		s.late = r.Within(120 * ms)
	}
	// Something must end a stream that stalls.
	if r.IntN(3) == 0 || slices.ContainsFunc(s.plans, func(p plan) bool { return p.stalls }) {
		s.deadline = s.late + r.Within(200*ms)
	}
	if r.IntN(4) == 0 && s.late == 0 { // what has come before a cancel may still be received after it
		s.abandons = 1 + r.IntN(4)
	}
	s.reads = r.IntN(2) == 0
	if s.judged = r.IntN(2) == 0 && !s.header && s.deadline == 0 && s.abandons == 0; s.judged {
		emptyIsRejected := r.IntN(2) == 0
		for n := range s.plans {
			p := &s.plans[n]
			if p.rejected = r.IntN(2) == 0; p.messages == 0 && p.code == codes.OK {
				p.rejected = emptyIsRejected // nobody can tell which attempt it was
			}
		}
	}
	return s
}

// verdict is what the rules say must come of a schedule.
type verdict struct {
	winner   int
	messages int
	code     codes.Code
	line     time.Duration // when the finish line was crossed
	end      time.Duration // when the caller knew the end
	sent     []time.Duration
}

// expect plays a schedule by the rules, event by event, without a goroutine or a clock.
func (s schedule) expect() verdict {
	var v verdict
	if !s.race(&v) { // the deadline struck first
		v.end = v.line
		return v
	}
	// The rest is the winner's alone.
	w, began := s.plans[v.winner], v.sent[v.winner]
	for n := range w.messages {
		at := max(began+w.first+time.Duration(n)*w.interval, v.line)
		if s.deadline > 0 && at > s.deadline {
			v.end, v.code = s.deadline, codes.DeadlineExceeded
			return v
		}
		v.messages++
		// With its last message a stream that ends well ends, so there is nothing left to abandon.
		if v.messages == s.abandons && (v.messages < w.messages || w.code != codes.OK || w.stalls) {
			v.end, v.code = at, codes.Canceled
			return v
		}
	}
	v.end, v.code = max(began+w.first+time.Duration(max(0, w.messages-1))*w.interval, v.line), w.code
	if w.messages > 0 && w.code != codes.OK { // the server waits an interval before it ends with an error
		v.end = max(began+w.first+time.Duration(w.messages)*w.interval, v.line)
	}
	if w.stalls || s.deadline > 0 && v.end > s.deadline {
		v.end, v.code = s.deadline, codes.DeadlineExceeded
	}
	return v
}

// race finds the winner, the moment of the finish line, and what was sent. It is false if the deadline came before.
func (s schedule) race(v *verdict) bool {
	v.sent = []time.Duration{0}
	// crosses is when an attempt reaches the finish line, and whether that ends the race.
	crosses := func(n int) (time.Duration, bool) {
		p, began := s.plans[n], v.sent[n]
		switch {
		case s.header && s.headerFirst:
			return began, true
		case p.messages > 0:
			return began + p.first, true
		default:
			return began + p.first, p.code == codes.OK || isAnswer(p.code) && (n == 0 || s.reads)
		}
	}
	due := s.late + s.delay - min(s.late, s.delay) // of the next hedge
	if s.late >= s.delay {
		due = s.late + ms
	}
	done := make([]bool, len(s.plans))
	calledFor := false              // a rejected answer called for the next hedge
	reply, rejectedStatus := -1, -1 // the first of each
	for {
		// The next event: an attempt at the line, a hedge that is due, or the deadline.
		at, attempt := time.Duration(1<<62), -1
		for n := range v.sent {
			if c, _ := crosses(n); !done[n] && max(c, s.late) < at {
				at, attempt = max(c, s.late), n
			}
		}
		if len(v.sent) < len(s.plans) && due < at {
			at, attempt = due, -1
		}
		if s.deadline > 0 && s.deadline < at {
			v.line, v.code = s.deadline, codes.DeadlineExceeded
			if done[0] { // the primary had failed before
				v.code = s.plans[0].code
			}
			return false
		}
		if attempt < 0 {
			v.sent = append(v.sent, at)
			due, calledFor = at+s.delay, false
			continue
		}
		done[attempt] = true
		_, final := crosses(attempt)
		p := s.plans[attempt]
		isReply := p.messages > 0 || p.code == codes.OK
		inFlight := slices.Contains(done[:len(v.sent)], false)
		switch {
		case final && p.rejected:
			switch {
			case isReply && reply < 0:
				reply = attempt
			case !isReply && rejectedStatus < 0:
				rejectedStatus = attempt
			}
			if len(v.sent) < len(s.plans) {
				due, calledFor = at, true
			}
		case final && (isReply || reply < 0):
			v.line, v.winner = at, attempt
			return true
		}
		if done[0] && !inFlight && !calledFor {
			v.line, v.winner = at, max(reply, 0)
			if reply < 0 {
				v.winner = max(rejectedStatus, 0)
			}
			return true
		}
	}
}

func isAnswer(c codes.Code) bool {
	return c == codes.NotFound || c == codes.PermissionDenied || c == codes.OutOfRange
}

// TestModel draws schedules by the hundred, or with -hedge.long by the thousand, plays each over real gRPC in virtual
// time, and checks the rules 1 to 11 on it against a model that has neither goroutines nor locks.
func TestModel(t *testing.T) {
	const perConnection = 100
	model.Each(t, model.Counts{Short: 300, Long: 2_000}, perConnection, func(t *testing.T) func(*testing.T, uint64) {
		var scheduler *hedge.Scheduler // of the schedule being played
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		conn := cluster.ClientT(t, grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream.Interceptor(scheduler)(ctx, desc, cc, method, streamer, opts...)
		}))
		testserver.ConnectT(t, conn)
		return func(t *testing.T, seed uint64) {
			s := drawSchedule(seed)
			opts := []hedge.Option{hedge.WithMaxHedges(len(s.plans) - 1), hedge.WithGuard(false)} // what fails here means nothing
			if s.reads {
				opts = append(opts, hedge.WithReadOnlyMethods("/*/*"))
			}
			if s.judged {
				opts = append(opts, s.goodAnswers())
			}
			scheduler = hedgetest.Fixed(t, s.delay, opts...)
			cluster.Reset()
			cluster.SetScript(s.script)
			s.play(t, cluster, testpb.NewTestServiceClient(conn))
		}
	})
}

// goodAnswers is the option that has the answers of the schedule be as good as it says.
func (s schedule) goodAnswers() hedge.Option {
	return hedge.WithAcceptable(func(_ context.Context, _ string, reply any, err error) bool {
		if err == io.EOF {
			return !slices.ContainsFunc(s.plans, func(p plan) bool { return p.rejected && p.messages == 0 && p.code == codes.OK })
		}
		n := 0
		if err != nil {
			n, _ = strconv.Atoi(status.Convert(err).Message())
		} else {
			n = int(reply.(*testpb.Reply).Attempt)
		}
		return !s.plans[n].rejected
	})
}

func (s schedule) script(a testserver.Attempt) testserver.Plan {
	p := s.plans[a.Number]
	plan := testserver.Plan{
		Delay: p.first, Interval: p.interval, Messages: p.messages, Empty: p.messages == 0,
		HeaderAtOnce: s.headerFirst, Trailer: metadata.Pairs("attempt", strconv.Itoa(a.Number)),
	}
	if p.code != codes.OK {
		plan.Code, plan.After, plan.Message = p.code, p.messages, strconv.Itoa(a.Number)
	}
	if p.stalls {
		plan.Ending, plan.After = testserver.Hang, p.messages
	}
	return plan
}

func (s schedule) play(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
	want := s.expect()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if s.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.deadline)
		defer cancel()
	}
	var trailer metadata.MD
	finished, finishedWith := 0, error(nil)
	began := time.Now()
	req := &testpb.Request{Id: s.seed, Messages: 1}
	st, err := client.ServerStream(ctx, req, grpc.Trailer(&trailer),
		grpc.OnFinish(func(err error) { finished, finishedWith = finished+1, err }))
	if err != nil {
		t.Fatalf("schedule %+v: %v", s, err)
	}
	time.Sleep(s.late)
	if s.header {
		if _, err := st.Header(); err != nil && s.deadline == 0 {
			t.Errorf("schedule %+v: Header: %v", s, err)
		}
		if at := time.Since(began); at != want.line {
			t.Fatalf("schedule %+v: headers after %v, want %+v", s, at, want)
		}
	}
	messages := 0
	for {
		var reply *testpb.Reply
		if reply, err = st.Recv(); err != nil {
			break
		}
		if checkErr := testserver.Check(req, uint32(messages), reply); checkErr != nil || int(reply.Attempt) != want.winner {
			t.Fatalf("schedule %+v: message %d is %v (%v), want one of attempt %d", s, messages, reply, checkErr, want.winner)
		}
		if messages++; messages == s.abandons && want.code == codes.Canceled {
			cancel()
		}
	}
	at := time.Since(began)
	if err == io.EOF {
		err = nil
	}
	if messages != want.messages || status.Code(err) != want.code || at != want.end {
		t.Fatalf("schedule %+v:\n%d messages, %v after %v;\nwant %+v", s, messages, err, at, want)
	}
	synctest.Wait() // the losers have unwound, without time going on
	if finished != 1 || status.Code(finishedWith) != want.code {
		t.Errorf("schedule %+v: OnFinish ran %d times, with %v", s, finished, finishedWith)
	}
	if number := trailer.Get("attempt"); len(number) > 0 && number[0] != fmt.Sprint(want.winner) {
		t.Errorf("schedule %+v: trailer of attempt %v, want %d", s, number, want.winner)
	}
	s.checkServer(t, cluster, want, began, at)
}

// checkServer checks what the server saw: rules 7, 8 and 11.
func (s schedule) checkServer(t *testing.T, cluster *testserver.Cluster, want verdict, began time.Time, at time.Duration) {
	records := cluster.Records()
	if len(records) != len(want.sent) {
		t.Fatalf("schedule %+v: %d attempts, want %d", s, len(records), len(want.sent))
	}
	for n, r := range records {
		latest := want.line // of a loser
		if n == want.winner {
			latest = at
		}
		if r.Number != n || r.Arrival.Sub(began) != want.sent[n] || r.Ended.IsZero() || r.Ended.Sub(began) > latest {
			t.Errorf("schedule %+v: attempt %d arrived after %v and ended after %v;\nwant %+v",
				s, r.Number, r.Arrival.Sub(began), r.Ended.Sub(began), want)
		}
		if n != want.winner && !s.plans[n].rejected && len(r.Sent) > 0 && r.Sent[0].Sub(began) < want.line && s.late == 0 {
			t.Errorf("schedule %+v: the loser %d had sent a message before", s, n)
		}
	}
}
