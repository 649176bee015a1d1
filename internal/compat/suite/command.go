package suite

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Command is the main function of the command with the given name. It sets s, which has the defaults, by
// the flags, and calls run with the modes to run and whether to run under the race detector. Of modes,
// which has commas between, it gets the flag's.
func (s *Suite) Command(name, modes string, run func(modes []string, race bool) error) {
	flag.StringVar(&modes, "modes", modes, "what to run, in this order")
	flag.StringVar(&s.Run, "run", "", "run only the tests that match, as go test -run does")
	race := flag.Bool("race", false, "run under the race detector")
	flag.IntVar(&s.Again, "again", s.Again,
		"how often a test that failed must pass alone, or as often as in the mode "+s.Plain+", for its failure not to "+
			"count; tests with bounds on real time fail now and then on a busy machine")
	flag.IntVar(&s.Spare, "unlisted", 0,
		"how many failures with many hedges ("+strings.Join(s.Hedging, ", ")+") may be missing from the list; which "+
			"tests a hedge disturbs is a matter of timing")
	flag.StringVar(&s.Work, "keep", "",
		"directory for the tests and their output, which stay; else a temporary one")
	flag.Parse()
	if err := s.inWork(name, func() error { return run(strings.Split(modes, ","), *race) }); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// inWork makes the directory Work, calls run, and returns the verdict. Without a name, the directory is
// temporary.
func (s *Suite) inWork(name string, run func() (err error)) (err error) {
	if s.Keep = s.Work != ""; !s.Keep {
		if s.Work, err = os.MkdirTemp("", name); err != nil {
			return err
		}
		defer os.RemoveAll(s.Work)
	}
	if s.Work, err = filepath.Abs(s.Work); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Work, 0o700); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	return s.Verdict()
}
