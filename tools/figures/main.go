// Command figures runs the commands of docs/figures.txt and lists the documentation's figures that
// they do not print.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

var (
	root  = flag.String("root", "..", "the folder of the repository")
	check = flag.Bool("check", false, "run nothing: only look whether the pages still have the text of the list")
	all   = flag.Bool("all", false, "run the commands marked slow too, which need an idle machine")
	kept  = flag.String("keep", "",
		"a folder that keeps what the commands print; a command whose output it has is not run")
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(),
			"usage: figures [flags] [page or part of a command]...\n\nRuns the commands of docs/figures.txt, or "+
				"those of these pages, and compares what they print.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	bad, err := every()
	if err != nil {
		log.Fatal(err)
	}
	if bad > 0 {
		log.Fatalf("%d commands print other figures than the documentation", bad)
	}
}

// every goes through the list, and returns how many commands have a figure that is not fresh.
func every() (bad int, err error) {
	text, err := os.ReadFile(filepath.Join(*root, "docs/figures.txt"))
	if err != nil {
		return 0, err
	}
	list, err := parse(string(text))
	if err != nil {
		return 0, err
	}
	if *kept == "" {
		if *kept, err = os.MkdirTemp("", "figures"); err != nil {
			return 0, err
		}
		defer os.RemoveAll(*kept)
	}
	for _, c := range list {
		if chosen(c) && !show(c) {
			bad++
		}
	}
	return bad, nil
}

// chosen reports whether the user wants the command.
func chosen(c *command) bool {
	return flag.NArg() == 0 || slices.ContainsFunc(flag.Args(), func(part string) bool {
		return c.page == part ||
			strings.Contains(c.line, part)
	})
}

// show runs a command and prints whether each of its claims is fresh. It reports whether all are.
func show(c *command) bool {
	page, err := os.ReadFile(filepath.Join(*root, c.page))
	if err != nil {
		log.Fatal(err)
	}
	output := ""
	if left := c.slow && !*all; !*check {
		fmt.Printf("%s: %s\n", c.page, c.line)
		if left {
			fmt.Println("  left out: it is slow, or needs an idle machine; -all runs it")
			return true
		}
		if output, err = run(c.line); err != nil {
			fmt.Printf("  failed: %v\n", err)
			return false
		}
	}
	good := true
	for _, claim := range c.claims {
		text, figures, err := claim.find(string(page))
		state, now := "fresh", []string(nil)
		if err == nil && !*check {
			fresh := false
			if now, fresh, err = claim.compare(string(page), figures, named(output), c.within); !fresh {
				state = "stale"
			}
		}
		if err != nil {
			state, now = "failed", []string{err.Error()}
		}
		if good = good && state == "fresh"; !*check || state == "failed" {
			fmt.Printf("  %-6s %s\n         %s\n", state, text, strings.Join(now, ", "))
		}
	}
	return good
}

// run returns the standard output of a command. Pages share commands, so outputs are cached.
func run(line string) (string, error) {
	file := filepath.Join(*kept, strings.NewReplacer("/", "_", " ", "_").Replace(line))
	if text, err := os.ReadFile(file); err == nil {
		return string(text), nil
	}
	c := exec.Command("sh", "-c", line)
	c.Dir = *root
	output, err := c.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return "", fmt.Errorf("%w\n%s", err, cmp.Or(string(failed.Stderr), string(output)))
	} else if err != nil {
		return "", err
	}
	return string(output), os.WriteFile(file, output, 0o644)
}
