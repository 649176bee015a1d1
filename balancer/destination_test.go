package balancer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestSilence_OfADestination has calls to eu hedged to us. A backend of either stalls after 10 s. If it is
// one of eu, only eu has a silent backend; if it is one of us, hedges avoid that one.
func TestSilence_OfADestination(t *testing.T) {
	longtest.Simulation(t)
	for _, at := range []string{"eu", "us"} {
		eachKind(t, func(t *testing.T, k kind) {
			region := func(name string) *testserver.Cluster {
				began := time.Now()
				return testserver.StartT(t, testserver.Config{Name: name, InMemory: true, Backends: 2,
					Script: func(a testserver.Attempt) testserver.Plan {
						switch stalls := time.Since(began) > 10*time.Second; {
						case name == at && a.Backend == stalled && stalls:
							return testserver.Plan{Ending: testserver.Hang}
						case name == "eu" && a.ID%5 == 0:
							return testserver.Plan{Delay: 100 * ms}
						}
						return testserver.Plan{Delay: 5 * ms}
					}})
			}
			eu, us := region("eu"), region("us")
			s := hedgetest.All(t, hedge.WithBudgetPercent(100))
			far := us.ClientT(t, over(roundRobin))
			conn := eu.ClientT(t, append(interceptor.DialOptions(s, interceptor.HedgeTo(far)), over(roundRobin))...)
			testserver.ConnectT(t, conn)
			testserver.ConnectT(t, far)
			synctest.Wait()
			client := testpb.NewTestServiceClient(conn)
			for id := range uint64(1500) {
				go func() {
					if _, err := k(t.Context(), client, &testpb.Request{Id: id}); err != nil {
						t.Errorf("call %d: %v", id, err)
					}
				}()
				time.Sleep(20 * ms)
			}
			time.Sleep(time.Second)
			for _, m := range s.Methods() {
				if silent := len(m.Silent) > 0; silent != (at == "eu" && m.Target == eu.Target()) {
					t.Errorf("%s has %d silent backends while one of %s stalls", m.Target, len(m.Silent), at)
				}
			}
			met, hedges := 0, us.Counts().Hedges
			for _, record := range us.Records() {
				if record.Backend == stalled && record.Number > 0 {
					met++
				}
			}
			t.Logf("a backend of %s stalls: %d of %d hedges went to the first backend of us", at, met, hedges)
			if hedges < 100 || at == "us" && met > int(hedges)/3 {
				t.Errorf("%d of %d hedges met the stalled backend of us, want less than a third of 100 or more", met, hedges)
			}
		})
	}
}
