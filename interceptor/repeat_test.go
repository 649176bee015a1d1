package interceptor_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// Messages of gRPC for a call on a connection that was cut.
const (
	silentCut = `connection error: desc = "error reading from server: EOF"`
	calmCut   = "closing transport due to: " + silentCut +
		`, received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too much"`
)

// In TestRule03_ACutCallIsRepeated a call fails because its connection was cut. The call is sent
// again, once, if the server named too many resets as the reason, hedges were sent in the last
// minute, and a hedge may be sent.
func TestRule03_ACutCallIsRepeated(t *testing.T) {
	cut := func(text string) step { return step{after: ms, code: codes.Unavailable, text: text} }
	calm := []step{cut(calmCut), answers(ms)}
	ofGet := func(option hedge.Option) []hedge.Option {
		return []hedge.Option{hedge.WithMethodOptions("/a/Get", option)}
	}
	const quiet = "no hedges were sent"
	again := []scene{
		{name: "the server says so", steps: calm, winner: 1},
		{name: "the second answer is rejected", steps: calm, doors: doors[:2], // headers are not judged
			opts: []hedge.Option{goodBut(1), hedge.WithMaxHedges(1)}, winner: 1, rejected: true},
		{name: "twice", steps: []step{cut(calmCut), cut(calmCut)}, code: codes.Unavailable},
		{name: "another method", steps: calm, method: "/a/GetOther", winner: 1},
		{name: "with a limit of resets", steps: calm,
			opts: []hedge.Option{hedge.WithResetLimit(40, time.Minute)}, winner: 1},
		{name: "the budget is spent", steps: calm, opts: []hedge.Option{hedge.WithBudgetPercent(1)}, winner: 1},
	}
	for i := range again {
		again[i].sent, again[i].at = times(0, 1), 2*ms
	}
	once := []scene{
		{name: quiet, steps: calm},
		{name: "the server says nothing", steps: []step{cut(silentCut)}},
		{name: "too many pings", steps: []step{cut(strings.Replace(calmCut, "too much", "too_many_pings", 1))}},
		{name: "another error", steps: []step{cut("no healthy upstream")}},
		{name: "a method that must not run twice", steps: calm, method: "/a/Put"},
		{name: "a request that cannot be copied", steps: calm, request: &struct{ text string }{"of a codec's own"}},
		{name: "not to be hedged", steps: calm, call: []grpc.CallOption{hedge.Off()}},
		{name: "no budget", steps: calm, opts: ofGet(hedge.WithBudgetPercent(0))},
		{name: "no hedges", steps: calm, opts: ofGet(hedge.WithMaxHedges(0))},
		{name: "a dry run", steps: calm, opts: ofGet(hedge.WithDryRun(true))},
		{name: "switched off", steps: calm, opts: ofGet(hedge.WithOff(true))},
	}
	for i := range once {
		once[i].sent, once[i].at, once[i].code = times(0), ms, codes.Unavailable
	}
	for _, sc := range append(again, once...) {
		eachDoor(t, sc.name, func(t *testing.T, d door) {
			s := hedgetest.New(t, append([]hedge.Option{hedge.WithMethods("/a/Get*"), hedge.WithTrigger(hedge.Fixed(10 * ms)),
				hedge.WithBudgetPercent(100)}, sc.opts...)...)
			for i := 0; i < 20 && sc.name != quiet; i++ {
				slow := &stub{steps: []step{answers(20 * ms), answers(5 * ms), silent()}, method: "/a/GetSlow"}
				if err := slow.callBy(d, t.Context(), s, wrapperspb.Int64(-1)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if sc.doors != nil && !slices.Contains(sc.doors, d) {
				return
			}
			sc.method = cmp.Or(sc.method, "/a/Get")
			sc.play(t, d, s)
			if got := s.Stats(); got.Repeated != int64(len(sc.sent)-1) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// In TestRule03_WordsProveLittle servers relay the errors of others, with the words of a connection
// that was cut. Words of too many resets cost some hedges and no more attempts than the budget pays
// for. Other words cost nothing.
func TestRule03_WordsProveLittle(t *testing.T) {
	longtest.Simulation(t)
	const slow, calls = 15, 300
	for _, tc := range []struct {
		text  string
		code  codes.Code
		words bool
	}{
		{calmCut, codes.Unavailable, true}, {calmCut, codes.Internal, false}, {silentCut, codes.Unavailable, false},
	} {
		hedgetest.Run(t, fmt.Sprintf("%.20s,%v", tc.text, tc.code), func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					switch {
					case a.ID > slow:
						return testserver.Plan{Code: tc.code, Message: tc.text, HeaderAtOnce: true}
					case a.Number == 0: // its hedge wins, so that it is reset
						return testserver.Plan{Delay: 100 * ms}
					}
					return testserver.Plan{}
				}})
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(100))
			client := testpb.NewTestServiceClient(dial(t, cluster, s))
			for id := range uint64(slow) {
				if _, err := client.Unary(t.Context(), &testpb.Request{Id: id + 1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Update(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10*ms))); err != nil { // 10 percent
				t.Fatal(err)
			}
			before := len(cluster.Records())
			for id := range uint64(calls) {
				for _, d := range doors[:2] {
					if _, err := callOver(t.Context(), d, client, &testpb.Request{Id: slow + 1 + id}); status.Code(err) != tc.code {
						t.Fatal(err)
					}
				}
			}
			most := 2 * calls
			if tc.words {
				most += 2 * (2*calls/10 + slow) // the budget's earnings and savings, and one burst of debt
			}
			if got := len(cluster.Records()) - before; got > most || got < 2*calls {
				t.Errorf("%d attempts for %d calls, %+v", got, 2*calls, s.Stats())
			}
			if rows := s.Methods(); (rows[0].Resets.Learned > 0) != tc.words {
				t.Errorf("%+v", rows[0].Resets)
			}
			time.Sleep(time.Hour)
			if rows := s.Methods(); rows[0].Resets.Learned > 0 {
				t.Errorf("an hour later: %+v", rows[0].Resets)
			}
		})
	}
}
