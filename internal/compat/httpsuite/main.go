// Command httpsuite runs Go's own tests of net/http (client, transport and server) with the requests
// of their clients through hedgehttp.Transport: with the default options, and with hedges after 5 ms.
// A third mode, passing, has a RoundTripper that only passes requests on, for comparison: net/http
// serves its own transport better than others.
//
// The tests belong to the Go toolchain in use. Nothing is copied: the program compiles package
// net/http with an overlay of the test files that it changes. In the modes passing and untuned
// only the tests may fail that fail with any RoundTripper but net/http's own. known.txt lists these and
// the tests that fail with hedges after 5 ms, each with the reason why the failure is right: package
// suite has the rules.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/grpchedge/hedge/internal/compat/suite"
)

//go:embed known.txt
var known string

const (
	often = "5ms" // the mode with many hedges
	every = "any" // begins the lines of known.txt that apply in all modes
)

var (
	modes = flag.String("modes", "passing,untuned,5ms", "what to run, in this order")
	run   = flag.String("run", "", "run only the tests that match, as go test -run does")
	race  = flag.Bool("race", false, "run under the race detector")
	again = flag.Int("again", 10,
		"how often a test that failed must pass alone, or as often as in the mode passing, for its failure not to "+
			"count; some tests of net/http have bounds on real time")
	spare = flag.Int("unlisted", 0,
		"how many failures in the mode 5ms may be missing from the list; which tests a hedge disturbs is a matter of "+
			"timing")
	keep = flag.String("keep", "", "directory for the overlay and the output of the tests, which stay; else a temporary one")
)

func main() {
	flag.Parse()
	if err := runSuite(); err != nil {
		fmt.Fprintln(os.Stderr, "httpsuite:", err)
		os.Exit(1)
	}
}

func runSuite() error {
	list, err := suite.ParseList(known, every)
	if err != nil {
		return err
	}
	work := *keep
	if work == "" {
		if work, err = os.MkdirTemp("", "httpsuite"); err != nil {
			return err
		}
		defer os.RemoveAll(work)
	}
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	dir, err := build(work)
	if err != nil {
		return err
	}
	s := &suite.Suite{Plain: "passing", Hedging: []string{often}, Run: *run, Again: *again, Spare: *spare,
		Timeout: "5m", Work: work, Keep: *keep != ""}
	for mode := range strings.SplitSeq(*modes, ",") {
		t := &suite.Tests{Label: "net/http", Name: "http", Dir: dir, Mode: mode, List: suite.Of(list, every)}
		if mode == often {
			maps.Copy(t.List, list)
		}
		s.RunAll(t)
		if err := s.Report(t); err != nil {
			return err
		}
	}
	return s.Verdict()
}
