package longtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mark  = regexp.MustCompile(`\tlongtest\.(Simulation|Computation)\(`)
	tests = regexp.MustCompile(`(?m)^func (Test\w+)\(.*(?:\n\tlongtest\.(Simulation|Computation)\(t\)$)?`)
)

// TestMarks checks that .ci/tests finds every marked test and no other: the mark is the first line of a test, and tests of
// one name in several packages have the same mark.
func TestMarks(t *testing.T) {
	marks := map[string]string{}
	for path, source := range testFiles(t) {
		placed := 0
		for _, m := range tests.FindAllStringSubmatch(source, -1) {
			if m[2] != "" {
				placed++
			}
			if other, ok := marks[m[1]]; ok && other != m[2] {
				t.Errorf("%s has the mark %q in %s and %q elsewhere", m[1], m[2], path, other)
			}
			marks[m[1]] = m[2]
		}
		if all := len(mark.FindAllString(source, -1)); all != placed {
			t.Errorf("%s: %d of %d marks are not on the first line of a test", path, all-placed, all)
		}
	}
	if marks["TestMachine_EveryInterleaving"] != "Computation" || marks["TestRule21_NeverWorseThanPlain"] != "Simulation" {
		t.Error("marked tests were not found")
	}
}

// testFiles reads the test files of the core module, by their paths.
func testFiles(t *testing.T) map[string]string {
	t.Helper()
	const root = "../.."
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		files[path] = string(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
