package race_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/mutant"
)

// TestMachine_Mutations plants bugs in the machine, one at a time, and shows that the search
// through all schedules finds each, or another test of the package.
func TestMachine_Mutations(t *testing.T) {
	longtest.Computation(t)
	longtest.Only(t)
	// Bugs that change nothing: of two conditions one follows from the other, or the machine
	// corrects itself in the same step.
	const harmless = 8
	binary, bugs := mutant.Build(t, "machine.go", "repeat.go")
	var survived []string
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan mutant.Bug)
	for range 2 {
		group.Go(func() {
			for b := range next {
				var out string
				var err error
				for _, args := range [][]string{
					{"-test.run=TestReport", "-test.timeout=10s"}, // random schedules find most bugs, and soon
					{"-test.run=TestMachine", "-test.timeout=2m"},
					{"-test.short", "-test.timeout=20s"},
				} {
					if out, err = b.Run(t, binary, append(args, "-test.failfast")...); err != nil {
						break
					}
				}
				mu.Lock()
				if err == nil {
					survived = append(survived, b.String())
				} else {
					_, rule, _ := strings.Cut(out, ": rule ")
					rule, _, _ = strings.Cut(rule, "\n")
					t.Logf("%v: found by rule %s", b, rule)
				}
				mu.Unlock()
			}
		})
	}
	for _, b := range bugs {
		next <- b
	}
	close(next)
	group.Wait()
	t.Logf("%d of %d bugs were found", len(bugs)-len(survived), len(bugs))
	if len(survived) > harmless {
		t.Errorf("%d bugs survived, want at most %d:\n%s", len(survived), harmless, strings.Join(survived, "\n"))
	}
}
