// Command walks counts how far a reader of a call walks: it adds a statement to every function
// of a copy of the library, runs scenes, and prints how many functions each entered, in how many
// files, and how often it turned back to a file that it had left.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

var (
	root = flag.String("root", "..", "the folder of the repository")
	list = flag.String("list", "", "print the walk of this scene, an entry a line, in place of the table")
)

var (
	//go:embed testdata/walk.go
	recorder string
	//go:embed testdata/scenes_test.go
	scenes string
)

// walked are the folders with the functions that count.
var walked = []string{".", "balancer", "hedgehttp", "interceptor", "stream", "stats",
	"internal/attempt", "internal/budget",
	"internal/call", "internal/control", "internal/guard", "internal/place", "internal/race", "internal/registry",
	"internal/rpc", "internal/runqueue", "internal/settings", "internal/sketch", "internal/trigger"}

func main() {
	log.SetFlags(0)
	flag.Parse()
	copied, err := os.MkdirTemp("", "walks")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(copied)
	out, err := run(copied)
	if err != nil {
		log.Print(err)
		os.RemoveAll(copied)
		os.Exit(1)
	}
	fmt.Print(out)
}

// run returns the table, or the walk of one scene.
func run(copied string) (string, error) {
	if err := os.CopyFS(copied, os.DirFS(*root)); err != nil {
		return "", err
	}
	for _, dir := range walked {
		if err := instrument(copied, dir); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(copied, "internal/walk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for name, text := range map[string]string{"walk.go": recorder, "scenes_test.go": scenes} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-v", "./internal/walk")
	cmd.Dir = copied
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return table(string(out)), nil
}

// instrument makes every function of a folder report that it is entered.
func instrument(copied, dir string) error {
	files, err := filepath.Glob(filepath.Join(copied, dir, "*.go"))
	if err != nil {
		return err
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, 0)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(filepath.Join(dir, filepath.Base(path)))
		for _, decl := range slices.Backward(file.Decls) {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				at := set.Position(f.Body.Lbrace).Offset + 1
				text = slices.Insert(text, at, []byte(fmt.Sprintf(" walk.Enter(%q, %q);", name, f.Name.Name))...)
			}
		}
		at := set.Position(file.Name.End()).Offset
		text = slices.Insert(text, at, []byte(`; import "github.com/grpchedge/hedge/internal/walk"`)...)
		text = append(text, "\nvar _ = walk.Enter\n"...)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// table counts each scene of the output.
func table(out string) string {
	var names []string
	entries := map[string][][]string{}
	for line := range strings.Lines(out) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); f[0] == "walk" {
			if entries[f[1]] == nil {
				names = append(names, f[1])
			}
			entries[f[1]] = append(entries[f[1]], f[2:])
		}
	}
	var b strings.Builder
	if *list != "" {
		for _, e := range entries[*list] {
			fmt.Fprintln(&b, strings.Join(e, " "))
		}
		return b.String()
	}
	slices.Sort(names)
	b.WriteString("| scene | functions | files | turns back |\n|---|---|---|---|\n")
	for _, scene := range names {
		seen, back, last := map[string]bool{}, 0, ""
		for _, e := range entries[scene] {
			if e[0] != last && seen[e[0]] {
				back++
			}
			seen[e[0]], last = true, e[0]
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", scene, len(entries[scene]), len(seen), back)
	}
	return b.String()
}
