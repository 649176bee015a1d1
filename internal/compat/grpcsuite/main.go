// Command grpcsuite runs gRPC's own end-to-end tests with the hedging interceptors on every
// connection: plain, watching only, with the default options, and with hedges after 1 ms. Another mode,
// elsewhere, sends such hedges over a second connection to the same target. It is not among the default
// modes: tests that count channels or streams fail in it, and one of test/xds, whose proxy takes one
// connection, does not end.
// The tests are copied, with the whole module, from the version of gRPC that this module requires,
// because they use gRPC's internal packages.
//
// In the first three modes no test may fail. known.txt lists the tests that fail in the others,
// each with the reason why the failure is right. An unlisted failure is an error. A listed test
// that passes is reported, because timing decides whether a hedge is sent after 1 ms. A test whose
// server panics on a second attempt ends the process: the list marks it as crashing, and it runs in
// its own process. An unlisted test that ends the process has failed, and the others run again.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

//go:embed testdata/hedge_test.go
var options string

//go:embed testdata/twin.go
var twin string

//go:embed known.txt
var known string

const elsewhere = "elsewhere" // the mode

// suites are the packages of gRPC's tests, and the names that their files give them.
var suites = []struct{ dir, pkg string }{{"test", "test"}, {"test/xds", "xds_test"}}

var (
	modes = flag.String("modes", "plain,watching,untuned,1ms", "what to run, in this order")
	run   = flag.String("run", "", "run only the tests that match, as go test -run does")
	race  = flag.Bool("race", false, "run under the race detector")
	again = flag.Int("again", 3,
		"how often a test that failed must pass alone, or as often as without interceptors, for its failure not to "+
			"count; gRPC's own tests fail now and then on a busy machine")
	spare = flag.Int("unlisted", 0,
		"how many failures in the modes 1ms and elsewhere may be missing from the list; which tests a hedge disturbs is "+
			"a matter of timing")
	keep = flag.String("keep", "", "directory for the copy and the output of the tests, which stay; else a temporary one")
)

func main() {
	flag.Parse()
	if err := suite(); err != nil {
		fmt.Fprintln(os.Stderr, "grpcsuite:", err)
		os.Exit(1)
	}
}

func suite() error {
	list, err := parseList(known)
	if err != nil {
		return err
	}
	twice := maps.Clone(list)
	for line, why := range list {
		if test, ok := strings.CutPrefix(line, elsewhere+" "); ok {
			twice[test] = why
		}
	}
	work := *keep
	if work == "" {
		if work, err = os.MkdirTemp("", "grpcsuite"); err != nil {
			return err
		}
		defer os.RemoveAll(work)
	}
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	copied := filepath.Join(work, "grpc")
	if err := build(work, copied); err != nil {
		return err
	}
	var unexplained []string
	for _, p := range runPairs(work, copied, list, twice) {
		if p.err != nil {
			return p.err
		}
		if err := retry(work, copied, p.dir, p.pkg, p.mode, &p.result, p.expected); err != nil {
			return err
		}
		fmt.Printf("%-8s %-8s %3d passed, %d failed, %d skipped, in %.0f s\n", p.mode, p.dir, len(p.passed),
			len(p.failed), p.skipped, p.took.Seconds())
		unlisted := report(p.dir, p.result, p.expected)
		if p.hedges() && p.crashed == "" {
			allowed := min(len(unlisted), *spare)
			*spare -= allowed
			unlisted = unlisted[allowed:]
		}
		for _, test := range unlisted {
			unexplained = append(unexplained, p.mode+" "+p.dir+" "+test)
		}
	}
	if len(unexplained) > 0 {
		return fmt.Errorf("failures that nothing explains, see above:\n  %s", strings.Join(unexplained, "\n  "))
	}
	return nil
}

// pair is one package of tests in one mode.
type pair struct {
	dir, pkg, mode string
	expected       map[string]string
	result
	took time.Duration
	err  error
}

// hedges reports whether the mode sends many hedges, which some tests do not allow.
func (p *pair) hedges() bool { return p.mode == "1ms" || p.mode == elsewhere }

// runPairs runs all packages in all modes, two at a time, since most tests wait most of the time. In the mode
// elsewhere the tests in twice may fail, and those in list in the other one that hedges.
func runPairs(work, copied string, list, twice map[string]string) []*pair {
	var pairs []*pair
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for mode := range strings.SplitSeq(*modes, ",") {
		for _, s := range suites {
			p := &pair{dir: s.dir, pkg: s.pkg, mode: mode}
			if p.hedges() {
				p.expected = list
			}
			if mode == elsewhere {
				p.expected = twice
			}
			pairs = append(pairs, p)
			turns <- struct{}{}
			group.Go(func() {
				defer func() { <-turns }()
				began := time.Now()
				p.result, p.err = runAll(work, copied, p.dir, p.pkg, p.mode, p.expected)
				p.took = time.Since(began)
			})
		}
	}
	group.Wait()
	return pairs
}

// retry runs each test alone that failed and is not listed. One that then always passes has not
// failed, and neither has one that passes no more often without interceptors, which is gRPC's own
// failure on a busy machine.
func retry(work, copied, dir, pkg, mode string, r *result, list map[string]string) error {
	var failed []string
	for _, test := range r.failed {
		if _, listed := list[dir+" "+test]; listed || *again == 0 {
			failed = append(failed, test)
			continue
		}
		count := func(mode string) (passes int, err error) {
			for range *again {
				passed, err := passesAlone(work, copied, dir, pkg, mode, test)
				if err != nil {
					return 0, err
				}
				if passed {
					passes++
				}
			}
			return passes, nil
		}
		passes, err := count(mode)
		plain := *again
		if err == nil && passes < *again {
			plain, err = count("plain")
		}
		if err != nil {
			return err
		}
		if passes < plain {
			failed = append(failed, test)
			continue
		}
		fmt.Printf("  failed among others and passed %d of %d times alone, plain %d: %s\n", passes, *again, plain, test)
		r.passed = append(r.passed, test)
	}
	r.failed = failed
	return nil
}

// report prints what differs from the list, and returns the failures that are not in it.
func report(dir string, r result, list map[string]string) (unlisted []string) {
	for _, test := range r.failed {
		if why, listed := list[dir+" "+test]; listed {
			fmt.Printf("  fails, as it should: %s: %s\n", test, why)
			continue
		}
		unlisted = append(unlisted, test)
		fmt.Printf("  FAILS: %s\n%s", test, r.output[test])
	}
	if r.crashed != "" {
		unlisted = append(unlisted, "(the process)")
		fmt.Printf("  CRASHED:\n%s", r.crashed)
	}
	for _, test := range r.passed {
		if _, listed := list[dir+" "+test]; listed {
			fmt.Printf("  in the list, but passes this time: %s\n", test)
		}
	}
	return unlisted
}

// parseList reads lines "folder test: why it fails". The mode elsewhere before the folder is part of the name.
func parseList(text string) (map[string]string, error) {
	list := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, why, ok := strings.Cut(line, ": ")
		if !ok || why == "" || strings.Count(strings.TrimPrefix(test, elsewhere+" "), " ") != 1 {
			return nil, fmt.Errorf("known.txt: %q is not \"folder test: why\"", line)
		}
		list[test] = why
	}
	return list, nil
}
