package place_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// TestSilence checks the events that begin and end a silence: L is a late call, A an answer, and w a
// wait of half the delay.
func TestSilence(t *testing.T) {
	for _, events := range []string{"LwL! A", "LLLwL! LA", "LwALwL!", "AA", "LwwwA", "LwL!LwL! A LwL!"} {
		hedgetest.Run(t, events, func(t *testing.T) {
			_, all := enter(t, "a")
			silent := false
			for i, event := range strings.ReplaceAll(events, " ", "") {
				switch event {
				case 'L':
					all[0].Late(time.Now(), 10*ms)
				case 'A':
					all[0].Answered()
				case 'w':
					time.Sleep(5 * ms)
				}
				if silent = event == '!' || silent && event != 'A'; event != 'L' && all[0].Silent() != silent {
					t.Errorf("event %d: silent is not %v", i, silent)
				}
			}
		})
	}
}

func TestSilence_Probes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy, all := enter(t, "a")
		b := all[0]
		r, large := newRecord(t), newRecord(t)
		large.SetRequest(nil, func(any) bool { return false })
		for _, r := range []*place.Record{r, large, nil} {
			if !b.Probe(time.Now(), r) {
				t.Error("a connection that is not silent refuses a primary")
			}
		}
		b.Late(time.Now(), 0)
		time.Sleep(ms)
		b.Late(time.Now(), 0)
		probes := func(lasts time.Duration, records ...*place.Record) (n int) {
			for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(ms) {
				for _, r := range records {
					if b.Probe(time.Now(), r) {
						n++
					}
				}
			}
			return n
		}
		for _, tc := range []struct {
			lasts     time.Duration
			records   []*place.Record // of the primaries of each millisecond
			low, high int
		}{
			{lasts: time.Second, records: []*place.Record{r}, low: 10, high: 10},
			{lasts: time.Minute - 50*ms, records: []*place.Record{nil, large}}, // primaries that may be hedged came a moment ago
			{lasts: time.Second, records: []*place.Record{large}, low: 1, high: 1},
			{lasts: time.Minute, records: []*place.Record{nil}, low: 8, high: 14}, // they come no more
			{lasts: time.Second, records: []*place.Record{nil, r}, high: 1},
			{lasts: time.Minute - 50*ms, records: []*place.Record{nil}},
		} {
			if n := probes(tc.lasts, tc.records...); n < tc.low || n > tc.high {
				t.Errorf("%d probes in %v, want %d to %d", n, tc.lasts, tc.low, tc.high)
			}
		}
		policy.SetSilence(false)
		if b.Late(time.Now(), 0); b.Suspect() {
			t.Error("there is no health listener")
		}
	})
}

// TestRank_Mute has hedges over a second connection that are not answered. From a second on, those
// that are no probes use the connection of their primary: probes go out at once, and each time that
// the silence has lasted twice as long.
func TestRank_Mute(t *testing.T) {
	hedgetest.Run(t, "", func(t *testing.T) {
		policy, began := place.Enter("target"), time.Now()
		defer policy.Leave()
		first := policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, 0)
		second := policy.NewBackend(nil, []resolver.Address{{Addr: "a"}}, 1)
		for _, step := range []struct {
			at    time.Duration
			probe bool
		}{{0, true}, {999 * ms, true}, {1000 * ms, true}, {1001 * ms, false}, {1999 * ms, false}, {2000 * ms, true},
			{2001 * ms, false}, {3999 * ms, false}, {4000 * ms, true}, {time.Hour, true}, {time.Hour + 29*time.Second, false},
			{time.Hour + 30*time.Second, true}} {
			time.Sleep(step.at - time.Since(began))
			r := newRecord(t)
			r.Picked(first)
			r.Lock()
			probe := r.Rank(second, time.Now()) < r.Rank(first, time.Now())
			if r.Unlock(); probe != step.probe {
				t.Errorf("after %v a hedge uses the second connection: %v, want %v", step.at, probe, step.probe)
			}
			if probe {
				hedge(t, r, second)
			}
		}
		second.Answered()
		if r := newRecord(t); used(r, second) {
			t.Error("mute after an answer")
		}
	})
}

func TestRecord_Late(t *testing.T) {
	_, all := enter(t, "a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	now, r := time.Now(), newRecord(t)
	newRecord(t).NoteLate(1, now, ms) // not picked yet: it has to wait for a connection
	r.Picked(a)
	r.NoteLate(1, now, ms)
	r.NoteLate(1, now.Add(ms), ms) // the hedge is considered again
	if !a.Suspect() || a.Silent() {
		t.Error("one call is late at a")
	}
	h := hedge(t, r, b)
	if r.NoteLate(2, now, ms); !b.Suspect() {
		t.Error("the hedge is late at b")
	}
	r.HedgeAnswered(h)
	if r.Ended(time.Since(now), true); a.Suspect() || b.Suspect() {
		t.Error("both have answered")
	}
	r = newRecord(t)
	r.Picked(a)
	r.Picked(c) // gRPC tries the primary again
	if r.NoteLate(1, now, ms); a.Suspect() || !c.Suspect() {
		t.Error("the primary is late at c")
	}
	var none *place.Record
	none.NoteLate(1, now, ms)
}

// TestCount_Silent: a silence is told from the third late call on that is 10 s later than the first,
// to the log and to Methods alike, until an answer, or a minute without a late call. An address is
// listed once, also if several policies have silent connections to it.
func TestCount_Silent(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name   string
		late   []time.Duration
		answer bool
		after  time.Duration
		want   bool
	}{
		{name: "two stragglers, far apart", late: []time.Duration{0, 11 * s}, after: s},
		{name: "many stragglers", late: []time.Duration{0, 1, s, 2 * s, 9 * s}, after: 10 * s},
		{name: "ten seconds", late: []time.Duration{0, s, 10 * s}, want: true},
		{name: "and half a minute", late: []time.Duration{0, s, 10 * s}, after: 31 * s, want: true},
		{name: "and a minute", late: []time.Duration{0, s, 10 * s}, after: time.Minute},
		{name: "an answer", late: []time.Duration{0, s, 10 * s}, answer: true},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			began := time.Now()
			_, one := enter(t, "a", "b", "c")
			_, two := enter(t, "a", "a") // a pool of two
			all := append(two, one[:2]...)
			want := []stats.SilentBackend{{Address: "a", Connections: 3, Since: began},
				{Address: "b", Connections: 1, Since: began}}
			for _, late := range tc.late {
				time.Sleep(late - time.Since(began))
				told := false
				for _, b := range all {
					told = b.Late(time.Now(), ms)
				}
				if is := place.Count("target").Silent; (len(is) > 0) != told {
					t.Errorf("after %v, logged: %v; in Methods: %v", late, told, is)
				}
			}
			if tc.answer {
				for _, b := range all {
					b.Answered()
				}
			}
			time.Sleep(tc.after)
			got := place.Count("target").Silent
			slices.SortFunc(got, func(a, b stats.SilentBackend) int { return cmp.Compare(a.Address, b.Address) })
			if tc.want && !slices.Equal(got, want) || !tc.want && len(got) > 0 {
				t.Errorf("reported: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestMoves checks the share of moved primaries after calls on connections that are not silent.
func TestMoves(t *testing.T) {
	type step struct {
		calls int
		of    string
		want  float64 // the share after them
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"it begins with few", []step{{0, "", 0.25}}},
		{"as before", []step{{4, "as before", 0.5}, {8, "as before", 1}, {8, "as before", 1}}},
		{"a little slower", []step{{12, "twice as long", 1}, {100, "twice as long", 1}}},
		{"slower", []step{{12, "as before", 1}, {28, "ten times as long", 1}, {7, "ten times as long", 0.45},
			{80, "ten times as long", 1. / 64}}},
		{"one slow call in a while", []step{{12, "as before", 1}, {1, "ten times as long", 1}}},
		{"failed", []step{{12, "as before", 1}, {1, "failed", 0.5}, {1, "failed", 0.25}}},
		{"never none", []step{{20, "failed", 1.0 / 64}, {16, "as before", 1}}},
		{"at the silent one", []step{{20, "failed there", 0.25}}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			policy, all := enter(t, "a", "b")
			silent, well := all[0], all[1]
			call := func(of string) {
				r, b := newRecord(t), well
				if of == "failed there" {
					b = silent
				}
				r.Picked(b)
				took := map[string]time.Duration{"twice as long": 2 * usual, "ten times as long": 10 * usual}[of]
				r.Ended(cmp.Or(took, usual), !strings.HasPrefix(of, "failed"))
			}
			for range 100 {
				call("as before")
			}
			fallSilent(silent)
			for i, s := range tc.steps {
				for range s.calls {
					policy.Moves()
					call(s.of)
				}
				const draws = 10_000
				moves := 0
				for range draws {
					if policy.Moves() {
						moves++
					}
				}
				if share := float64(moves) / draws; math.Abs(share-s.want) > 0.05 {
					t.Errorf("step %d: %.3f are moved, want %.3f", i, share, s.want)
				}
			}
			// Long after the last move, calls no longer change the share.
			for range 64 {
				call("as before")
			}
			call("failed")
			for range 100 {
				if !policy.Moves() {
					t.Fatal("fewer are moved")
				}
			}
		})
	}
}
