// Package suite runs the compiled tests of another project in several modes, some with hedging, and
// compares their failures with a list of right failures.
//
// A listed test that passes is reported, because timing decides whether a hedge is sent. An unlisted
// failure is an error. A listed test that ends the process runs in its own process. A listed test that
// never ends does not run. An unlisted test that ends the process has failed, and the others run again.
package suite

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Suite has the flags of a command, and what its runs share.
type Suite struct {
	Plain   string   // the mode that shows how often a test fails without hedging
	Hedging []string // the modes with many hedges, in which listed tests may fail
	Run     string   // run only the tests that match, as go test -run does
	Again   int      // how often a failed test must pass alone
	Spare   int      // how many unlisted failures the modes in Hedging may have
	Timeout string   // of a process, as go test -timeout
	Work    string   // has the compiled tests, Name.test
	Keep    bool     // keep the output of the tests in Work

	unexplained []string
}

// Tests is one compiled package of tests in one mode.
type Tests struct {
	Label  string // begins the lines of the list and of reports
	Name   string // of the file in Work
	Dir    string // where the tests run
	Parent string // the test function whose subtests are the tests, or ""
	Mode   string // HEDGE_SUITE_MODE
	List   map[string]string

	result
	took time.Duration
	err  error
}

// RunAll runs the tests of one package. Report then has their result.
func (s *Suite) RunAll(t *Tests) {
	began := time.Now()
	t.result, t.err = s.runAll(t)
	t.took = time.Since(began)
}

// Report prints the result of tests that RunAll has run, and runs failed tests again.
func (s *Suite) Report(t *Tests) error {
	if t.err != nil {
		return t.err
	}
	if err := s.retry(t); err != nil {
		return err
	}
	with := ""
	if t.Parent == "" {
		with = fmt.Sprintf(" (%d with subtests)", t.all)
	}
	fmt.Printf("%-8s %-8s %3d passed%s, %d failed, %d skipped, %d left out, in %.0f s\n", t.Mode, t.Label,
		len(t.passed), with, len(t.failed), t.skipped, t.left, t.took.Seconds())
	if t.hedges != "" {
		fmt.Printf("  hedges: %s\n", t.hedges)
	}
	unlisted := t.report()
	if slices.Contains(s.Hedging, t.Mode) && t.crashed == "" {
		allowed := min(len(unlisted), s.Spare)
		s.Spare -= allowed
		unlisted = unlisted[allowed:]
	}
	for _, test := range unlisted {
		s.unexplained = append(s.unexplained, t.Mode+" "+t.Label+" "+test)
	}
	return nil
}

// Verdict returns an error with the unlisted failures of all reports beyond Spare.
func (s *Suite) Verdict() error {
	if len(s.unexplained) == 0 {
		return nil
	}
	return fmt.Errorf("failures that nothing explains, see above:\n  %s", strings.Join(s.unexplained, "\n  "))
}

// retry runs each failed test alone that is not listed. A test that then always passes has not
// failed. Neither has a test that passes as often as in the mode Plain, where the project's own tests
// fail on a busy machine.
func (s *Suite) retry(t *Tests) error {
	var failed []string
	for _, test := range t.failed {
		if _, listed := t.List[t.Label+" "+test]; listed || s.Again == 0 {
			failed = append(failed, test)
			continue
		}
		passes, err := s.passes(t, t.Mode, test)
		plain := s.Again
		if err == nil && passes < s.Again {
			plain, err = s.passes(t, s.Plain, test)
		}
		if err != nil {
			return err
		}
		if passes < plain {
			failed = append(failed, test)
			continue
		}
		fmt.Printf("  failed among others and passed %d of %d times alone, %s %d: %s\n", passes, s.Again, s.Plain, plain,
			test)
		t.passed = append(t.passed, test)
	}
	t.failed = failed
	return nil
}

// passes returns how often a test passes alone.
func (s *Suite) passes(t *Tests, mode, test string) (n int, err error) {
	for range s.Again {
		passed, err := s.passesAlone(t, mode, test)
		if err != nil {
			return 0, err
		}
		if passed {
			n++
		}
	}
	return n, nil
}

// report prints what differs from the list, and returns the unlisted failures.
func (t *Tests) report() (unlisted []string) {
	for _, test := range t.failed {
		if why, listed := t.List[t.Label+" "+test]; listed {
			fmt.Printf("  fails, as it should: %s: %s\n", test, why)
			continue
		}
		unlisted = append(unlisted, test)
		fmt.Printf("  FAILS: %s\n%s", test, t.output[test])
	}
	if t.crashed != "" {
		unlisted = append(unlisted, "(the process)")
		fmt.Printf("  CRASHED:\n%s", t.crashed)
	}
	for _, test := range t.passed {
		if _, listed := t.List[t.Label+" "+test]; listed {
			fmt.Printf("  in the list, but passes this time: %s\n", test)
		}
	}
	return unlisted
}

// ParseList reads lines "label test: why the failure is right", without comments, which begin with #.
// The words before the label, such as the mode of the line, are part of the name.
func ParseList(text string, modes ...string) (map[string]string, error) {
	list := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, why, ok := strings.Cut(line, ": ")
		named := test
		for _, mode := range modes {
			named = strings.TrimPrefix(named, mode+" ")
		}
		if _, twice := list[test]; !ok || why == "" || twice || strings.Count(named, " ") != 1 {
			return nil, fmt.Errorf("known.txt: %q must be \"label test: why\", once", line)
		}
		list[test] = why
	}
	return list, nil
}

// Of returns the lines of a list that begin with mode, without this word.
func Of(list map[string]string, mode string) map[string]string {
	of := map[string]string{}
	for line, why := range list {
		if test, ok := strings.CutPrefix(line, mode+" "); ok {
			of[test] = why
		}
	}
	return of
}

// Output runs a command in dir and returns its output.
func Output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
