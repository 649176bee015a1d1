package race_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

// mutations are bugs to plant in the machine: the text old, which occurs once, is replaced by new.
var mutations = []struct{ bug, old, new string }{
	{"cancels the winner", "a.Cancel = (m.inFlight | m.kept) &^ only(n)", "a.Cancel = m.inFlight | m.kept"},
	{"leaves losers running", "a.Cancel = (m.inFlight | m.kept) &^ only(n)", ""},
	{"a hedge's final status decides while the primary is in flight", "e.End == Final && m.rules.HedgeFinal", "e.End == Final"},
	{"a hedge's final status never decides", "e.End == Final && m.rules.HedgeFinal", "false"},
	{"a primary's final status does not decide", "(m.gone || e.End == Final && !m.hasReply)", "m.gone"},
	{"a hedge that the caller's end cut short decides", "	case m.gone:\n		// The", "	case m.gone && e.End != Final:\n		// The"},
	{"loses the primary's error", "	case m.rules.LastFailureWins:", "	case true:"},
	{"the last failure does not win", "	case m.rules.LastFailureWins:", "	case false:"},
	{"forgets which failure was last", "m.lastFail = e.Attempt", "m.lastFail = max(m.lastFail, e.Attempt)"},
	{"a panic is no outcome", "m.panicked = e.End == Panicked\n		m.decide", "m.decide"},
	{"a committed primary's panic is no outcome", "if e.Attempt == m.winner {", "if false {"},
	{"does not stop the timer", "case !wanted && m.armed:", "case false:"},
	{"does not arm the timer anew when the hedge is due at another time", "(!m.armed || m.armedAt != m.due)", "!m.armed"},
	{"sends before the hedge is due", "if m.waitsForDue() && now >= m.due", "if m.waitsForDue()"},
	{"sends when the race is over", "return m.decided || m.gone || m.noMore", "return m.gone || m.noMore"},
	{"sends for a caller that has gone", "return m.decided || m.gone || m.noMore", "return m.decided || m.noMore"},
	{"ignores max hedges", "m.turns < m.rules.MaxHedges\n}", "true\n}"},
	{"skipped hedges do not count", "case Skipped:\n		m.considered(now)", "case Skipped:\n		m.considered(now)\n		m.turns--"},
	{"the hedge after a skipped one is due at once", "case Skipped:\n		m.considered(now)", "case Skipped:\n		m.turns++"},
	{"forgets a pushback", "m.notBefore = max(m.notBefore, now+e.Wait)", ""},
	{"an earlier pushback is forgotten for a later one", "m.notBefore = max(m.notBefore, now+e.Wait)", "m.notBefore = now + e.Wait"},
	{"a pushback for good is forgotten", "case PushbackNever:\n\t\tm.noMore = true", "case PushbackNever:"},
	{"a hedge being prepared ignores a pushback", "!m.over() && now >= m.notBefore", "!m.over()"},
	{"delivers twice", "m.delivered = true", ""},
	{"does not wait for preparation", "m.delivered || m.pending != nothing ||", "m.delivered || m.pending == asked ||"},
	{"does not wait for the primary to return", "awaited := only(0) | only(m.winner)", "awaited := only(m.winner)"},
	{"does not wait for hedges that share memory", "awaited = ^Attempts(0)", ""},
	{"goes on after a commit", "		m.decide(0, &a)\n", ""},
	{"goes on though the request cannot be sent twice", "m.noMore = m.noMore || e.Kind == NotReplayable", ""},
	{"asks again though it was refused for good", "case Refused, NotReplayable:\n		m.noMore = true", "case Refused, NotReplayable:"},
	{"asks at once though it was held back", "m.due = max(e.Until, m.notBefore)", ""},
	{"waits for a hedge that was held back", "case HeldBack:\n\t\tm.calledFor = false", "case HeldBack:"},
	{"a failure does not send the next hedge", "failed := m.rules.FailureSendsNext && e.End == NonFatal", "failed := false"},
	{"a failure always sends the next hedge", "failed := m.rules.FailureSendsNext && e.End == NonFatal", "failed := e.End == NonFatal"},
	{"a final failure sends the next hedge", "failed := m.rules.FailureSendsNext && e.End == NonFatal", "failed := m.rules.FailureSendsNext"},
	{"waits for a hedge beyond the last", "	if m.pending != nothing {\n		turns++\n	}\n", ""},
	{"retries though no failure sends a hedge", "return m.waits && !m.over()", "return !m.over()"},
	{"waits for a caller that has gone", "return !m.inFlight.Has(0) || m.hasReply || m.hasStatus", "return m.hasReply || m.hasStatus"},
	{"gives up while a hedge is in flight", "m.inFlight == 0 && !m.hedgeToCome()", "!m.inFlight.Has(0) && !m.hedgeToCome()"},
	{"a poor answer decides", "	case e.End == PoorReply:\n		if a.Kept", "	case e.End == PoorReply && m.sent > 0:\n		m.decide(e.Attempt, a)\n	case e.End == PoorReply:\n		if a.Kept"},
	{"a poor answer is lost", "	case m.hasReply:\n		m.decide(m.reply, a)\n", ""},
	{"the last poor answer wins", "		if !m.hasReply {\n", "		{\n"},
	{"a poor stream is not kept", "if a.Kept = e.Open; e.Open {", "if e.Open {"},
	{"a poor stream that loses goes on", "m.kept |= only(e.Attempt)", ""},
	{"a primary's failure replaces a poor reply", "e.End == Final && !m.hasReply)", "e.End == Final)"},
	{"a hedge's failure replaces a poor reply", "m.rules.HedgeFinal && !m.hasReply", "m.rules.HedgeFinal"},
	{"a poor answer waits for a caller that has gone", "return !m.inFlight.Has(0) || m.hasReply || m.hasStatus", "return !m.inFlight.Has(0) || m.hasStatus"},
	{"a poor status waits for a caller that has gone", "return !m.inFlight.Has(0) || m.hasReply || m.hasStatus", "return !m.inFlight.Has(0) || m.hasReply"},
	{"a poor status is lost", "	case m.hasStatus:\n		m.decide(m.status, a)\n", ""},
	{"the last poor status wins", "if !m.hasStatus && e.End", "if e.End"},
	{"what was skipped cannot be sent for a poor answer", "		m.turns = m.sent\n", ""},
	{"a poor answer goes by what was said before it", "m.waits, m.stale = true, true", "m.waits = true"},
	{"asks again for an earlier poor answer", "m.calledFor, m.stale = false, false", "m.calledFor = false"},
	{"asks again though a server pushed back", "m.stale && now >= m.notBefore {", "m.stale {"},
	{"a poor answer does not send the next hedge", "poor := e.End.IsPoor()", "poor := false"},
	{"a poor status does not send the next hedge", "poor := e.End.IsPoor()", "poor := e.End == PoorReply"},
	{"a poor answer does not wait for the hedge that it sends", "m.waits, m.stale = true, true", "m.stale = true"},
	{"a poor answer waits for a server that pushed back", "poor && m.notBefore <= now)", "poor)"},
	{"a poor answer waits for a server that pushes back", "m.calledFor = m.calledFor && m.rules.FailureSendsNext", ""},
	{"never sends again", "e.Repeat && m.repeat == unwanted", "false"},
	{"sends again twice", "e.Repeat && m.repeat == unwanted", "e.Repeat"},
	{"sends again with an answer at hand", " || m.hasReply || m.hasStatus\n\tif m.repeat", "\n\tif m.repeat"},
	{"sends again what may have no hedge", " || m.rules.MaxHedges == 0 ||", " ||"},
	{"does not wait for the hedge that sends again", "m.repeat, m.waits = wanted, true", "m.repeat = wanted"},
	{"repeats while an attempt is in flight", "atHand := m.inFlight != 0", "atHand := m.inFlight.Has(0)"},
	{"repeats though a server wants none yet", "atHand || m.notBefore > now", "atHand"},
	{"has no room for the repetition", "	m.turns = min(m.turns, m.rules.MaxHedges-1)\n", ""},
	{"never concludes", "		m.conclude(&a)\n	}\n	m.setTimer", "	}\n	m.setTimer"},
}

// TestMachine_Mutations plants bugs in the machine, one at a time, and shows that the search through all schedules finds
// each. It builds the package anew for each, with one of the machine's files replaced. Without -hedge.long it only looks
// whether the bugs can be planted still.
func TestMachine_Mutations(t *testing.T) {
	longtest.Computation(t)
	sources := map[string]string{}
	for _, name := range []string{"machine.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(source)
	}
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.bug, " ", "_"), func(t *testing.T) {
			var name string
			found := 0
			for file, source := range sources {
				if n := strings.Count(source, m.old); n > 0 {
					name, found = file, found+n
				}
			}
			if found != 1 {
				t.Fatalf("%q occurs %d times in the machine", m.old, found)
			}
			if !*long {
				return
			}
			out, err := testWith(t, name, strings.Replace(sources[name], m.old, m.new, 1))
			_, rule, broken := strings.Cut(out, ": rule ")
			if err == nil || !broken {
				t.Fatalf("survived: %v\n%s", err, out)
			}
			rule, _, _ = strings.Cut(rule, "\n")
			t.Logf("found by rule %s", rule)
		})
	}
}

// testWith runs the search on the package with another source in the place of a file.
func testWith(t *testing.T, name, source string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	mutant, overlay := filepath.Join(dir, name), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{mutant: []byte(source), overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-overlay="+overlay, "-failfast", "-run=^TestMachine_(Repeats|EveryInterleaving)$", ".", "-hedge.long", "-hedge.full").CombinedOutput()
	return string(run), err
}
