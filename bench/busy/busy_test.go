package busy

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMain makes this binary the program that Busy starts.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "busy" {
		os.Exit(m.Run())
	}
	b := small()
	fs := flag.NewFlagSet("busy", flag.ExitOnError)
	serve, sleep, client := fs.Bool("serve", false, ""), fs.Bool("sleep", false, ""), fs.String("client", "", "")
	for _, name := range []string{"own", "seed", "duration", "slice", "loads", "budget"} {
		fs.String(name, "", "")
	}
	fs.DurationVar(&b.Handler, "handler", 0, "")
	_ = fs.Parse(os.Args[2:])
	var err error
	if *serve {
		err = Serve(os.Stdin, os.Stdout, b.Handler, *sleep)
	} else {
		err = b.RunClient(context.Background(), os.Stdout, os.Stderr, strings.Split(*client, ","))
	}
	if err != nil {
		panic(err)
	}
}

func small() Busy {
	return Busy{
		Self: os.Args[0], Servers: 2, Handler: time.Millisecond, Own: time.Millisecond, Loads: []int{
			50}, Duration: time.Second,
		Slice: 200 * time.Millisecond, Budget: 10, Seed: 1,
	}
}

// TestBusy runs the command in little time: the figures say nothing.
func TestBusy(t *testing.T) {
	b := small()
	var out bytes.Buffer
	if err := b.Run(t.Context(), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	row := func(name string) string { return ` 50% +` + name + ` +[\d,]+ +[\d.]+ ms .* +0 ` }
	for _, want := range []string{
		row(plain) + `(?s:.*)` + row(hedged) + `(?s:.*)` + row(shedding) +
			`(?s:.*)A client with GOMAXPROCS=1(?s:.*)` + row(plain) + `(?s:.*)` + row(hedged),
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s\ndoes not match %s", &out, want)
		}
	}
}
