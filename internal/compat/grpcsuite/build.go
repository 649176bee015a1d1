package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/compat/suite"
)

// build copies gRPC's module, adds the interceptors to it and compiles the tests.
func build(work, copied string, race bool) error {
	began := time.Now()
	module, err := suite.Output("", "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "google.golang.org/grpc")
	if err != nil {
		return err
	}
	ours, err := suite.Output("", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/grpchedge/hedge")
	if err != nil {
		return err
	}
	dir, version, _ := strings.Cut(module, " ")
	if err := copyTree(dir, copied); err != nil {
		return err
	}
	// What our module requires, and in the versions that it requires.
	requires, err := suite.Output(ours, "go", "list", "-m", "-f", "{{if not .Main}}{{.Path}}@{{.Version}}{{end}}", "all")
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
	if _, err := suite.Output(copied, "go", edit...); err != nil {
		return err
	}
	if err := addTwins(copied); err != nil {
		return err
	}
	for _, s := range suites {
		file := strings.Replace(options, "package test\n", "package "+s.pkg+"\n", 1)
		if err := os.WriteFile(filepath.Join(copied, s.dir, "hedge_interceptors_test.go"), []byte(file), 0o600); err != nil {
			return err
		}
		args := []string{"test", "-mod=mod", "-vet=off", "-c", "-o", filepath.Join(work, s.pkg+".test")}
		if race {
			args = append(args, "-race")
		}
		if _, err := suite.Output(copied, "go", append(args, "./"+s.dir)...); err != nil {
			return err
		}
	}
	fmt.Printf("gRPC %s, tests built in %.0f s\n", version, time.Since(began).Seconds())
	return nil
}

// addTwins adds to the copy of gRPC a second connection for each, for the mode elsewhere.
func addTwins(copied string) error {
	name, head := filepath.Join(copied, "clientconn.go"), "func (cc *ClientConn) Close() error {\n"
	source, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	closes := strings.Replace(string(source), head, head+"\tcloseTwin(cc)\n", 1)
	if closes == string(source) {
		return fmt.Errorf("%s has no %q", name, head)
	}
	if err := os.WriteFile(name, []byte(closes), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(copied, "hedge_twin.go"), []byte(twin), 0o600)
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
