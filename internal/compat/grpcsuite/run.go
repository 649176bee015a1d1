package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// result is how the tests of one package ended. Tests go by the name under gRPC's one test
// function, Test/Name.
type result struct {
	passed, failed []string
	skipped        int
	output         map[string]string // of failed tests
	crashed        string            // the end of the output, if the tests did not run to theirs
	running        string            // the last test that began
}

// crashes begins the reason of a test that ends the process.
const crashes = "crashes: "

// maxCrashes is how many unlisted tests of a package may end the process before their failure is
// the whole package's.
const maxCrashes = 3

// runAll runs the tests of one package together, but not tests that end the process. Each test that
// is listed as crashing runs alone.
func runAll(work, copied, dir, pkg, mode string, list map[string]string) (result, error) {
	var alone []string
	for test, why := range list {
		if test, ok := strings.CutPrefix(test, dir+" "); ok && strings.HasPrefix(why, crashes) {
			alone = append(alone, test)
		}
	}
	if *run != "" {
		alone = nil // it is the user's choice
	}
	slices.Sort(alone)
	var crashed []result
	skip := slices.Clone(alone)
	r, err := runTests(work, filepath.Join(copied, dir), pkg, mode, *run, skip)
	for err == nil && r.crashed != "" && r.running != "" && len(crashed) < maxCrashes {
		crashed = append(crashed, r)
		skip = append(skip, r.running)
		r, err = runTests(work, filepath.Join(copied, dir), pkg, mode, *run, skip)
	}
	if err != nil {
		return r, err
	}
	for _, c := range crashed {
		r.failed = append(r.failed, c.running)
		r.output[c.running] = c.crashed
	}
	for _, test := range alone {
		switch passed, err := passesAlone(work, copied, dir, pkg, mode, test); {
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
func passesAlone(work, copied, dir, pkg, mode, test string) (bool, error) {
	r, err := runTests(work, filepath.Join(copied, dir), pkg, mode, pattern(test), nil)
	return r.crashed == "" && len(r.failed) == 0, err
}

// pattern returns the flag of go test that selects, or skips, the given tests; "" for none.
func pattern(tests ...string) string {
	if len(tests) == 0 {
		return ""
	}
	var names []string
	for _, test := range tests {
		names = append(names, strings.TrimPrefix(test, "Test/"))
	}
	return "^Test$/^(" + strings.Join(names, "|") + ")$"
}

func runTests(work, dir, pkg, mode, run string, skip []string) (result, error) {
	cmd := exec.Command(filepath.Join(work, pkg+".test"), "-test.v", "-test.timeout=30m", "-test.run="+run,
		"-test.skip="+pattern(skip...))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HEDGE_SUITE_MODE="+mode)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	if *keep != "" {
		name := pkg + "-" + mode + strings.NewReplacer("^", "", "$", "", "/", "-", "(", "", ")", "").Replace(run) + ".log"
		if err := os.WriteFile(filepath.Join(work, name), out, 0o600); err != nil {
			return result{}, err
		}
	}
	r := parse(string(out))
	if ended := bytes.HasSuffix(bytes.TrimSpace(out), []byte("PASS")) ||
		bytes.HasSuffix(bytes.TrimSpace(out), []byte("FAIL")); !ended || err != nil && len(r.failed) == 0 {
		r.crashed = string(out[max(0, len(out)-20_000):])
	}
	return r, nil
}

// parse reads the output of go test -v.
func parse(out string) result {
	r := result{output: map[string]string{}}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "=== RUN   "); ok && strings.Count(name, "/") == 1 {
			r.running = name
		}
		verdict, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "--- "), ": ")
		if !ok || !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		if depth := strings.Count(name, "/"); depth > 1 || depth == 0 && name == "Test" {
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
	slices.Sort(r.failed)
	return r
}

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
