// Command api writes every exported name of the library's public packages, with its type, one a
// line, sorted. "make generate" writes api/v0.txt with it, and "make lint" fails where the file
// differs, so that no change of the API is an accident.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"go/types"
	"log"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: api dir...\n\nWrites the exported names of all packages of the modules in these folders.")
	}
	flag.Parse()
	var lines []string
	for _, dir := range flag.Args() {
		pkgs, err := packages.Load(
			&packages.Config{Dir: dir,
				Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps |
					packages.NeedSyntax | packages.NeedTypesInfo}, "./...")
		if err != nil {
			log.Fatal(err)
		}
		if packages.PrintErrors(pkgs) > 0 {
			os.Exit(1)
		}
		for _, p := range pkgs {
			if p.Name != "main" && !private(p.PkgPath) {
				lines = append(lines, exported(p.Types)...)
			}
		}
	}
	slices.Sort(lines)
	out := bufio.NewWriter(os.Stdout)
	for _, line := range slices.Compact(lines) {
		fmt.Fprintln(out, line)
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

// private reports whether the package makes no promise: it cannot be imported, or serves tests and
// examples.
func private(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"),
		func(part string) bool { return slices.Contains([]string{"internal", "proto", "examples"}, part) })
}

func exported(p *types.Package) (lines []string) {
	// Names of the package itself have no qualifier. Other names have their path, which tells two
	// packages of one name apart.
	qualify := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Path()
	}
	say := func(format string, args ...any) {
		lines = append(lines, "pkg "+p.Path()+", "+fmt.Sprintf(format, args...))
	}
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		t, ok := object.(*types.TypeName)
		if !ok {
			say("%s", types.ObjectString(object, qualify))
			continue
		}
		structure, ok := t.Type().Underlying().(*types.Struct)
		if ok {
			say("type %s struct", name)
			for field := range structure.Fields() {
				if field.Exported() {
					say("type %s struct, %s %s", name, field.Name(), types.TypeString(field.Type(), qualify))
				}
			}
		} else {
			say("%s", types.ObjectString(object, qualify))
		}
		if types.IsInterface(t.Type()) {
			continue
		}
		methods := types.NewMethodSet(types.NewPointer(t.Type()))
		for method := range methods.Methods() {
			if method.Obj().Exported() {
				say("method (%s) %s%s", name, method.Obj().Name(),
					strings.TrimPrefix(types.TypeString(method.Type(), qualify), "func"))
			}
		}
	}
	return lines
}
