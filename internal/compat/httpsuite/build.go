package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/compat/suite"
)

//go:embed testdata/hedge_test.go
var transport string

// needs is the version of Go with tests to which the edits apply.
const needs = "go1.26"

// edits are the lines that the overlay adds: each after the first line, and before the second one.
var edits = []struct{ file, after, before, line string }{
	{"clientserver_test.go", "\t\tcst.close()\n\t})\n", "\treturn cst\n",
		"\tcst.c.Transport = suiteWrap(cst.tr)\n"},
	{"main_test.go", "\tv := m.Run()\n", "\tif v == 0", "\tsuiteCounts()\n"},
}

// assertion matches the type assertions of transports of clients, which are not of this type once wrapped.
var assertion = regexp.MustCompile(`((?:\w+(?:\(\))?\.)+Transport)\.\(\*Transport\)`)

// build compiles the tests of package net/http with the overlay, and returns the folder of the package.
func build(work string, race bool) (dir string, err error) {
	began := time.Now()
	env, err := suite.Output("", "go", "env", "GOVERSION", "GOROOT")
	if err != nil {
		return "", err
	}
	version, root, _ := strings.Cut(env, "\n")
	dir = filepath.Join(root, "src", "net", "http")
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no tests, as in toolchains that the go command fetches: install %s from go.dev/dl "+
			"(this is %s)", dir, needs, version)
	}
	overlay := map[string]string{}
	write := func(name, text string) error {
		overlay[filepath.Join(dir, name)] = filepath.Join(work, name)
		return os.WriteFile(filepath.Join(work, name), []byte(text), 0o600)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		text, err := edit(filepath.Base(file), string(source))
		if err != nil {
			return "", fmt.Errorf("%w: this suite needs %s, and this is %s", err, needs, version)
		}
		if text == string(source) {
			continue
		}
		if err := write(filepath.Base(file), text); err != nil {
			return "", err
		}
	}
	if err := write("hedge_suite_test.go", transport); err != nil {
		return "", err
	}
	replaced, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	list := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(list, replaced, 0o600); err != nil {
		return "", err
	}
	args := []string{"test", "-vet=off", "-c", "-overlay", list, "-o", filepath.Join(work, "http.test")}
	if race {
		args = append(args, "-race")
	}
	if _, err := suite.Output("", "go", append(args, "net/http")...); err != nil {
		return "", fmt.Errorf("%w\nthis suite needs %s, and this is %s", err, needs, version)
	}
	fmt.Printf("net/http of %s, tests built in %.0f s\n", version, time.Since(began).Seconds())
	return dir, nil
}

// edit returns the source of a test file as the overlay has it.
func edit(file, source string) (string, error) {
	if strings.Contains(source, "\npackage http_test\n") {
		source = assertion.ReplaceAllString(source, "suiteUnwrap($1)")
	}
	for _, e := range edits {
		if e.file != file {
			continue
		}
		if n := strings.Count(source, e.after+e.before); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, not once", file, e.after+e.before, n)
		}
		source = strings.Replace(source, e.after+e.before, e.after+e.line+e.before, 1)
	}
	return source, nil
}
