// Command grpcsuite runs gRPC's own end-to-end tests with the hedging interceptors on every
// connection: plain, watching only, with the default options, and with hedges after 1 ms. The tests
// are copied, with the whole module, from the version of gRPC that this module requires, because
// they use gRPC's internal packages.
//
// In the first three modes no test may fail. known.txt lists the tests that fail in the fourth,
// each with the reason why the failure is right. An unlisted failure is an error. A listed test
// that passes is reported, because timing decides whether a hedge is sent after 1 ms. A test whose
// server panics on a second attempt ends the process: the list marks it as crashing, and it runs in
// its own process. An unlisted test that ends the process has failed, and the others run again.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed testdata/hedge_test.go
var options string

//go:embed known.txt
var known string

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
		"how many failures in the mode 1ms may be missing from the list; which tests a hedge disturbs is a matter "+
			"of timing")
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
	for _, p := range runPairs(work, copied, list) {
		if p.err != nil {
			return p.err
		}
		if err := retry(work, copied, p.dir, p.pkg, p.mode, &p.result, p.expected); err != nil {
			return err
		}
		fmt.Printf("%-8s %-8s %3d passed, %d failed, %d skipped, in %.0f s\n", p.mode, p.dir, len(p.passed),
			len(p.failed), p.skipped, p.took.Seconds())
		unlisted := report(p.dir, p.result, p.expected)
		if p.mode == "1ms" && p.crashed == "" {
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

// runPairs runs all packages in all modes, two at a time, since most tests wait most of the time.
func runPairs(work, copied string, list map[string]string) []*pair {
	var pairs []*pair
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for mode := range strings.SplitSeq(*modes, ",") {
		for _, s := range suites {
			p := &pair{dir: s.dir, pkg: s.pkg, mode: mode}
			if mode == "1ms" {
				p.expected = list
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
		_, name, _ := strings.Cut(test, "/")
		alone := func(mode string) (passes int, err error) {
			for range *again {
				one, err := runTests(work, filepath.Join(copied, dir), pkg, mode, "^Test$/^"+name+"$", "")
				if err != nil {
					return 0, err
				}
				if one.crashed == "" && len(one.failed) == 0 {
					passes++
				}
			}
			return passes, nil
		}
		passes, err := alone(mode)
		plain := *again
		if err == nil && passes < *again {
			plain, err = alone("plain")
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

// parseList reads lines "folder test: why it fails".
func parseList(text string) (map[string]string, error) {
	list := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, why, ok := strings.Cut(line, ": ")
		if !ok || why == "" || strings.Count(test, " ") != 1 {
			return nil, fmt.Errorf("known.txt: %q is not \"folder test: why\"", line)
		}
		list[test] = why
	}
	return list, nil
}

// build copies gRPC's module, adds the interceptors to it and compiles the tests.
func build(work, copied string) error {
	began := time.Now()
	module, err := output("", "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "google.golang.org/grpc")
	if err != nil {
		return err
	}
	ours, err := output("", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/grpchedge/hedge")
	if err != nil {
		return err
	}
	dir, version, _ := strings.Cut(module, " ")
	if err := copyTree(dir, copied); err != nil {
		return err
	}
	// What our module requires, and in the versions that it requires.
	requires, err := output(ours, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}@{{.Version}}{{end}}", "all")
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-require=github.com/grpchedge/hedge@v0.0.0",
		"-replace=github.com/grpchedge/hedge=" + ours}
	for _, r := range strings.Fields(requires) {
		if strings.HasPrefix(r, "github.com/DataDog/sketches-go@") || strings.HasPrefix(r, "go.uber.org/atomic@") {
			edit = append(edit, "-require="+r)
		}
	}
	if _, err := output(copied, "go", edit...); err != nil {
		return err
	}
	for _, s := range suites {
		file := strings.Replace(options, "package test\n", "package "+s.pkg+"\n", 1)
		if err := os.WriteFile(filepath.Join(copied, s.dir, "hedge_interceptors_test.go"), []byte(file), 0o600); err != nil {
			return err
		}
		args := []string{"test", "-mod=mod", "-vet=off", "-c", "-o", filepath.Join(work, s.pkg+".test")}
		if *race {
			args = append(args, "-race")
		}
		if _, err := output(copied, "go", append(args, "./"+s.dir)...); err != nil {
			return err
		}
	}
	fmt.Printf("gRPC %s, tests built in %.0f s\n", version, time.Since(began).Seconds())
	return nil
}

// copyTree copies a module out of the module cache, where files are read-only.
func copyTree(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), content, 0o600)
	})
}

// output runs a command and returns its output.
func output(dir, name string, args ...string) (string, error) {
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

// runAll runs the tests of one package together, without those that end the process. Each test that
// is listed as crashing runs alone.
func runAll(work, copied, dir, pkg, mode string, list map[string]string) (result, error) {
	var alone []string
	for test, why := range list {
		if name, ok := strings.CutPrefix(test, dir+" Test/"); ok && strings.HasPrefix(why, crashes) {
			alone = append(alone, name)
		}
	}
	if *run != "" {
		alone = nil // it is the user's choice
	}
	slices.Sort(alone)
	skipped := slices.Clone(alone)
	crashed := map[string]string{}
	var r result
	var err error
	for {
		skip := ""
		if len(skipped) > 0 {
			skip = "^Test$/^(" + strings.Join(skipped, "|") + ")$"
		}
		r, err = runTests(work, filepath.Join(copied, dir), pkg, mode, *run, skip)
		_, name, found := strings.Cut(r.running, "/")
		if err != nil || r.crashed == "" || !found || len(crashed) == maxCrashes {
			break
		}
		crashed[r.running] = r.crashed
		skipped = append(skipped, name)
	}
	for test, end := range crashed {
		r.failed = append(r.failed, test)
		r.output[test] = end
	}
	for _, name := range alone {
		if err != nil {
			break
		}
		var one result
		if one, err = runTests(work, filepath.Join(copied, dir), pkg, mode, "^Test$/^"+name+"$",
			""); one.crashed != "" || len(one.failed) > 0 {
			r.failed = append(r.failed, "Test/"+name)
		} else {
			r.passed = append(r.passed, one.passed...)
		}
	}
	return r, err
}

func runTests(work, dir, pkg, mode, run, skip string) (result, error) {
	cmd := exec.Command(filepath.Join(work, pkg+".test"), "-test.v", "-test.timeout=30m", "-test.run="+run,
		"-test.skip="+skip)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HEDGE_SUITE_MODE="+mode)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	if *keep != "" {
		name := pkg + "-" + mode + strings.NewReplacer("^", "", "$", "", "/", "-").Replace(run) + ".log"
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
