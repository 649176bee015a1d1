package hedge_test

import (
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/internal/race"
)

// TestDocs_RulesNameTheirTests compares the tests named in docs/rules.md with the Rule tests of all
// modules.
func TestDocs_RulesNameTheirTests(t *testing.T) {
	named, tests := map[string][]string{}, map[string][]string{} // by the rule's two digits
	for _, m := range regexp.MustCompile("`(Rule(\\d\\d)_\\w+)`").FindAllStringSubmatch(read(t, "docs/rules.md"), -1) {
		named[m[2]] = append(named[m[2]], m[1])
	}
	for _, name := range functions(t) {
		if m := regexp.MustCompile(`^Test(Rule(\d\d)_\w+)`).FindStringSubmatch(name); m != nil {
			tests[m[2]] = append(tests[m[2]], m[1])
		}
	}
	for rule := range 100 {
		digits := fmt.Sprintf("%02d", rule)
		if got, want := named[digits], tests[digits]; !slices.Equal(got, want) {
			t.Errorf("docs/rules.md lists for rule %s\n\t%s\nwant\n\t`%s`", digits, strings.Join(got, ", "),
				strings.Join(want, "`, `"))
		}
	}
}

// TestDocs_OneBound finds the bound on extra attempts in docs/rules.md, and nowhere another version
// of it.
func TestDocs_OneBound(t *testing.T) {
	const bound = "extra attempts <= budget * calls + burst + 2 + hedge wins"
	stated := map[string]int{}
	for _, path := range pages(t, "docs/*.md", "README.md", "doc.go", "budget/budget.go") {
		for _, found := range regexp.MustCompile("extra attempts <=[^`\n]*").FindAllString(read(t, path), -1) {
			stated[path]++
			if found != bound {
				t.Errorf("%s has the bound %q, want %q", path, found, bound)
			}
		}
	}
	if stated["docs/rules.md"] != 1 {
		t.Errorf("docs/rules.md has the bound %d times", stated["docs/rules.md"])
	}
}

// TestDocs_LargestRequest finds the size of the largest request that can be hedged wherever it is stated.
func TestDocs_LargestRequest(t *testing.T) {
	want := fmt.Sprintf("%d MiB", race.MaxRequest>>20)
	for _, path := range []string{"interceptor/unary.go", "hedgehttp/hedgehttp.go", "debug/sentence.go", "docs/http.md",
		"docs/chaining.md"} {
		if text := read(t, path); !strings.Contains(text, want) {
			t.Errorf("%s has the sizes %q, want %s among them", path, regexp.MustCompile(`\d+ [KM]iB`).FindAllString(text, -1), want)
		}
	}
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages returns the paths that match the pattern, and more.
func pages(t *testing.T, pattern string, more ...string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return append(found, more...)
}

// functions returns the sorted names of the tests, examples and benchmarks of all modules.
func functions(t *testing.T) (names []string) {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz|Benchmark)\w*)`)
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
				names = append(names, m[1])
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestDocs_CommandsRunSomething checks that each -run or -bench of the documentation matches a test or
// a benchmark of some module.
func TestDocs_CommandsRunSomething(t *testing.T) {
	names := functions(t)
	command, commands := regexp.MustCompile("-(run|bench)\\s+('[^']+'|[^\\s`)\"]+)"), 0
	for _, page := range pages(t, "docs/*.*", "README.md", "CONTRIBUTING.md") {
		for _, m := range command.FindAllStringSubmatch(read(t, page), -1) {
			commands++
			pattern, _, _ := strings.Cut(strings.Trim(m[2], "',"), "/")
			of := regexp.MustCompile(pattern)
			if none := strings.EqualFold(pattern, "xxx"); !none && !slices.ContainsFunc(names, func(name string) bool {
				return strings.HasPrefix(name, "Benchmark") == (m[1] == "bench") && of.MatchString(name)
			}) {
				t.Errorf("%s: %s matches nothing", page, m[0])
			}
		}
	}
	if commands < 50 {
		t.Errorf("%d commands were found", commands)
	}
}

const module = "github.com/grpchedge/hedge"

// room is an entry of the list in CONTRIBUTING.md: its number, and the folders that its packages
// may import.
type room struct {
	entry   int
	imports []string
}

// TestDocs_ImportsFollowTheList compares the core module's imports, without tests, with the list in
// CONTRIBUTING.md: every package has an entry, and imports only packages that the entry allows,
// from entries further down.
func TestDocs_ImportsFollowTheList(t *testing.T) {
	rooms := readRooms(t)
	for folder, imports := range coreImports(t) {
		from, ok := rooms[folder]
		if !ok {
			t.Errorf("CONTRIBUTING.md has no entry for %s", folder)
		}
		for _, to := range imports {
			if !slices.Contains(from.imports, to) {
				t.Errorf("%s imports %s, which its entry in CONTRIBUTING.md does not allow", folder, to)
			} else if rooms[to].entry <= from.entry {
				t.Errorf("%s imports %s, which is not further down in CONTRIBUTING.md", folder, to)
			}
		}
	}
}

// readRooms returns the entries of the list by folder; "." is the root.
func readRooms(t *testing.T) map[string]room {
	t.Helper()
	_, list, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Where things are\n")
	list, _, _ = strings.Cut(list, "\n## ")
	rooms := map[string]room{}
	for i, entry := range strings.Split(list, "\n- ")[1:] {
		places, purpose, _ := strings.Cut(entry, ": ")
		purpose, _, _ = strings.Cut(purpose, "\n\n")
		_, imports, _ := strings.Cut(purpose, "\n  Imports ")
		for _, folder := range folders(places) {
			rooms[folder] = room{i, folders(imports)}
		}
	}
	return rooms
}

// folders reads a list, such as "root, `budget`, `internal/{learn,race}`".
func folders(list string) []string {
	if strings.HasPrefix(list, "root, `package hedge`") {
		return []string{"."}
	}
	var all []string
	if strings.HasPrefix(list, "root") {
		all = append(all, ".")
	}
	for _, m := range regexp.MustCompile("`([\\w/]+)(?:\\{(.*?)\\})?`").FindAllStringSubmatch(list, -1) {
		for _, name := range strings.Split(m[2], ",") {
			all = append(all, path.Join(m[1], name))
		}
	}
	return all
}

// coreImports returns the folders of this module that each folder's package imports.
func coreImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	err := filepath.WalkDir(".", func(folder string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		folder = filepath.ToSlash(folder)
		_, err = os.Stat(filepath.Join(folder, "go.mod"))
		own := err == nil && folder != "."
		if own || len(folder) > 1 && folder[0] == '.' || strings.HasPrefix(folder, "proto/") {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(folder, 0)
		if err != nil { // tests only, or no Go
			return nil
		}
		imports[folder] = []string{}
		for _, name := range p.Imports {
			if rest, ok := strings.CutPrefix(name, module); ok {
				imports[folder] = append(imports[folder], path.Join(".", rest))
			}
		}
		return nil
	})
	if err != nil || len(imports["interceptor"]) == 0 {
		t.Fatalf("%v, %d folders", err, len(imports))
	}
	return imports
}
