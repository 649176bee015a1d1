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
	"maps"

	"github.com/grpchedge/hedge/internal/compat/suite"
)

//go:embed known.txt
var known string

const (
	often = "5ms" // the mode with many hedges
	every = "any" // begins the lines of known.txt that apply in all modes
)

func main() {
	s := &suite.Suite{Plain: "passing", Hedging: []string{often}, Again: 10, Timeout: "5m"}
	s.Command("httpsuite", "passing,untuned,5ms", func(modes []string, race bool) error {
		return runSuite(s, modes, race)
	})
}

func runSuite(s *suite.Suite, modes []string, race bool) error {
	list, err := suite.ParseList(known, every)
	if err != nil {
		return err
	}
	dir, err := build(s.Work, race)
	if err != nil {
		return err
	}
	for _, mode := range modes {
		t := &suite.Tests{Label: "net/http", Name: "http", Dir: dir, Mode: mode, List: suite.Of(list, every)}
		if mode == often {
			maps.Copy(t.List, list)
		}
		s.RunAll(t)
		if err := s.Report(t); err != nil {
			return err
		}
	}
	return nil
}
