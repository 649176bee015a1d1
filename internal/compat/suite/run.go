package suite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// result is how the tests of one package ended.
type result struct {
	passed, failed []string
	all            int // passed tests and subtests
	skipped, left  int
	output         map[string]string // of failed tests
	hedges         string            // the lines of the tests about hedges
	crashed        string            // the end of the output, if the tests did not run to theirs
	running        []string          // the tests that ran then
}

// The reason of a test that ends the process, or never ends, begins with one of these.
const (
	crashes = "crashes: "
	hangs   = "hangs: "
)

// maxCrashes is how many unlisted tests of a package may end the process before their failure is
// the whole package's.
const maxCrashes = 3

// runAll runs the tests of one package together, except for listed tests that end the process or
// never end.
func (s *Suite) runAll(t *Tests) (result, error) {
	var alone, skip []string
	for line, why := range t.List {
		test, ok := strings.CutPrefix(line, t.Label+" ")
		if ok && strings.HasPrefix(why, crashes) {
			alone = append(alone, test)
		}
		if ok && strings.HasPrefix(why, hangs) {
			skip = append(skip, test)
		}
	}
	if s.Run != "" { // it is the user's choice
		alone, skip = nil, nil
	}
	left := len(skip)
	slices.Sort(alone)
	skip = append(skip, alone...)
	var crashed []result
	r, err := s.runTests(t, t.Mode, s.Run, skip)
	for err == nil && r.crashed != "" && len(r.running) > 0 && len(crashed) < maxCrashes {
		crashed = append(crashed, r)
		skip = append(skip, r.running...)
		r, err = s.runTests(t, t.Mode, s.Run, skip)
	}
	if err != nil {
		return r, err
	}
	r.left = left
	for _, c := range crashed {
		for _, test := range c.running {
			r.failed = append(r.failed, test)
			r.output[test] = c.crashed
		}
	}
	for _, test := range alone {
		switch passed, err := s.passesAlone(t, t.Mode, test); {
		case err != nil:
			return r, err
		case passed:
			r.passed = append(r.passed, test)
		default:
			r.failed = append(r.failed, test)
		}
	}
	return r, nil
}

// passesAlone reports whether a test passes in a process of its own.
func (s *Suite) passesAlone(t *Tests, mode, test string) (bool, error) {
	r, err := s.runTests(t, mode, t.pattern(test), nil)
	return r.crashed == "" && len(r.failed) == 0, err
}

// pattern returns the flag of go test that selects, or skips, the given tests; "" for none.
func (t *Tests) pattern(tests ...string) string {
	if len(tests) == 0 {
		return ""
	}
	parent, names := "", make([]string, 0, len(tests))
	if t.Parent != "" {
		parent = "^" + t.Parent + "$/"
	}
	for _, test := range tests {
		names = append(names, strings.TrimPrefix(test, t.Parent+"/"))
	}
	return parent + "^(" + strings.Join(names, "|") + ")$"
}

func (s *Suite) runTests(t *Tests, mode, run string, skip []string) (result, error) {
	cmd := exec.Command(filepath.Join(s.Work, t.Name+".test"), "-test.v", "-test.timeout="+s.Timeout, "-test.run="+run,
		"-test.skip="+t.pattern(skip...))
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), "HEDGE_SUITE_MODE="+mode)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	if s.Keep {
		name := t.Name + "-" + mode + strings.NewReplacer("^", "", "$", "", "/", "-", "(", "", ")", "").Replace(run) + ".log"
		if err := os.WriteFile(filepath.Join(s.Work, name), out, 0o600); err != nil {
			return result{}, err
		}
	}
	r := t.parse(string(out))
	if ended := ending.Match(out); !ended || err != nil && len(r.failed) == 0 {
		r.crashed = string(out[max(0, len(out)-20_000):])
	}
	return r, nil
}

// ending matches the end of the output of tests that ran to theirs.
var ending = regexp.MustCompile(`(?m)^(PASS|FAIL)\n(hedges: .*\n)?\z`)

// inFlight matches a line of the list that a process prints at its timeout.
var inFlight = regexp.MustCompile(`(?m)^\t+([^ \n]+) \([0-9.hms]+\)$`)

// parse reads the output of go test -v.
func (t *Tests) parse(out string) result {
	r := result{output: map[string]string{}}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if began, ok := strings.CutPrefix(line, "=== "); ok {
			if f := strings.Fields(began); len(f) == 2 && (f[0] == "RUN" || f[0] == "CONT") && t.isOne(f[1]) {
				r.running = f[1:]
			}
		}
		if hedges, ok := strings.CutPrefix(line, "hedges: "); ok {
			r.hedges = hedges
		}
		verdict, rest, ok := strings.Cut(strings.TrimPrefix(line, "--- "), ": ")
		if !ok || !strings.HasPrefix(line, "--- ") {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		if verdict == "PASS" {
			r.all++
		}
		if !t.isOne(name) {
			continue
		}
		switch verdict {
		case "PASS":
			r.passed = append(r.passed, name)
		case "SKIP":
			r.skipped++
		case "FAIL":
			r.failed = append(r.failed, name)
			r.output[name] = outputOf(out, name)
		}
	}
	if _, list, timedOut := strings.Cut(out, "panic: test timed out"); timedOut {
		list, _, _ = strings.Cut(list, "\ngoroutine ")
		r.running = nil
		for _, m := range inFlight.FindAllStringSubmatch(list, -1) {
			r.running = append(r.running, t.one(m[1]))
		}
		slices.Sort(r.running)
		r.running = slices.Compact(r.running)
	}
	slices.Sort(r.failed)
	return r
}

// one returns the name of the test to which a test or subtest belongs. In its form Parent/Name, the
// test is a subtest of Parent.
func (t *Tests) one(name string) string {
	parts := strings.SplitN(name, "/", 3)
	if t.Parent != "" && parts[0] == t.Parent && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// isOne reports whether the name belongs to a test, not to a subtest or to Parent.
func (t *Tests) isOne(name string) bool { return t.one(name) == name && name != t.Parent }

// outputOf is what one test printed.
func outputOf(out, name string) string {
	begin := strings.Index(out, "=== RUN   "+name+"\n")
	if begin < 0 {
		return ""
	}
	text := out[begin:]
	depth := strings.Count(name, "/")
	for at := 1; ; {
		next := strings.Index(text[at:], "=== RUN   ")
		if next < 0 {
			break
		}
		at += next
		if line, _, _ := strings.Cut(text[at:], "\n"); strings.Count(line, "/") <= depth {
			text = text[:at]
			break
		}
		at++
	}
	return text[max(0, len(text)-8_000):]
}
