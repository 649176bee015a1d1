// Command grpcsuite runs gRPC's own end-to-end tests with the hedging interceptors on every
// connection: plain, watching only, with the default options, and with hedges after 1 ms. Another mode,
// elsewhere, sends such hedges over a second connection to the same target. It is not among the default
// modes: tests that count channels or streams fail in it, and one of test/xds, whose proxy takes one
// connection, does not end.
// The tests are copied, with the whole module, from the version of gRPC that this module requires,
// because they use gRPC's internal packages.
//
// In the first three modes no test may fail. known.txt lists the tests that fail in the others, each
// with the reason why the failure is right: package suite has the rules.
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

	"github.com/grpchedge/hedge/internal/compat/suite"
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
	if err := runSuite(); err != nil {
		fmt.Fprintln(os.Stderr, "grpcsuite:", err)
		os.Exit(1)
	}
}

func runSuite() error {
	list, err := suite.ParseList(known, elsewhere)
	if err != nil {
		return err
	}
	twice := maps.Clone(list)
	maps.Copy(twice, suite.Of(list, elsewhere))
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
	s := &suite.Suite{Plain: "plain", Hedging: []string{"1ms", elsewhere}, Run: *run, Again: *again, Spare: *spare,
		Timeout: "30m", Work: work, Keep: *keep != ""}
	for _, t := range runAll(s, copied, list, twice) {
		if err := s.Report(t); err != nil {
			return err
		}
	}
	return s.Verdict()
}

// runAll runs all packages in all modes, two at a time, since most tests wait most of the time. In the mode
// elsewhere the tests in twice may fail, and those in list in the other one that hedges.
func runAll(s *suite.Suite, copied string, list, twice map[string]string) []*suite.Tests {
	var all []*suite.Tests
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for mode := range strings.SplitSeq(*modes, ",") {
		for _, p := range suites {
			t := &suite.Tests{Label: p.dir, Name: p.pkg, Dir: filepath.Join(copied, p.dir), Parent: "Test", Mode: mode}
			switch mode {
			case "1ms":
				t.List = list
			case elsewhere:
				t.List = twice
			}
			all = append(all, t)
			turns <- struct{}{}
			group.Go(func() {
				defer func() { <-turns }()
				s.RunAll(t)
			})
		}
	}
	group.Wait()
	return all
}
