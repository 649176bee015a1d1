package place_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
)

// TestKnown_IsShared has two connections to one address, of two policies. With a scheduler's
// knowledge they share late calls, answers and probes, unless their numbers differ. A connection that
// alone has no answer is silent by itself.
func TestKnown_IsShared(t *testing.T) {
	for _, tc := range []struct {
		name   string
		shared bool
		second int    // the number of the second connection
		events string // each event at the first connection is in capitals; l is late, a an answer, w a wait
		want   [2]bool
	}{
		{name: "one late call each", shared: true, events: "Lwl", want: [2]bool{true, true}},
		{name: "without a scheduler", events: "Lwl"},
		{name: "two of one, without a scheduler", events: "LwL", want: [2]bool{true, false}},
		{name: "an answer of the other", shared: true, events: "LwlA"},
		{name: "one connection alone", shared: true, events: "LaLwaLa", want: [2]bool{true, false}},
		{name: "another number", shared: true, second: 1, events: "Lwl"},
		{name: "two of one, another number", shared: true, second: 1, events: "LwLa", want: [2]bool{true, false}},
		{name: "late while the address is silent", shared: true, events: "LwlwLwLwa"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b [2]*place.Backend
				known := place.NewKnown()
				for i := range b {
					policy, _ := enter(t)
					b[i] = policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, i*tc.second)
					policy.Show(b[i : i+1])
					if tc.shared {
						r := newRecord(t)
						r.Share(known)
						r.Picked(b[i])
					}
				}
				for _, e := range tc.events {
					switch e {
					case 'L':
						b[0].Late(time.Now(), 10*ms)
					case 'l':
						b[1].Late(time.Now(), 10*ms)
					case 'A':
						b[0].Answered()
					case 'a':
						b[1].Answered()
					case 'w':
						time.Sleep(5 * ms)
					}
				}
				if got := [2]bool{b[0].Silent(), b[1].Silent()}; got != tc.want {
					t.Errorf("silent: %v, want %v", got, tc.want)
				}
				if !tc.want[0] || !tc.want[1] {
					return
				}
				if r := newRecord(t); !b[0].Probe(time.Now(), r) || b[1].Probe(time.Now(), r) {
					t.Error("want one probe for both connections")
				}
			})
		})
	}
}
