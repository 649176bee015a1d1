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
	"maps"
	"path/filepath"
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

func main() {
	s := &suite.Suite{Plain: "plain", Hedging: []string{"1ms", elsewhere}, Again: 3, Timeout: "30m"}
	s.Command("grpcsuite", "plain,watching,untuned,1ms", func(modes []string, race bool) error {
		return runSuite(s, modes, race)
	})
}

func runSuite(s *suite.Suite, modes []string, race bool) error {
	list, err := suite.ParseList(known, elsewhere)
	if err != nil {
		return err
	}
	twice := maps.Clone(list)
	maps.Copy(twice, suite.Of(list, elsewhere))
	copied := filepath.Join(s.Work, "grpc")
	if err := build(s.Work, copied, race); err != nil {
		return err
	}
	for _, t := range runAll(s, modes, copied, list, twice) {
		if err := s.Report(t); err != nil {
			return err
		}
	}
	return nil
}

// runAll runs all packages in all modes, two at a time, since most tests wait most of the time. In the mode
// elsewhere the tests in twice may fail, and those in list in the other one that hedges.
func runAll(s *suite.Suite, modes []string, copied string, list, twice map[string]string) []*suite.Tests {
	var all []*suite.Tests
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for _, mode := range modes {
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
