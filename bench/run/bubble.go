package run

import (
	"flag"
	"os"
	"sync"
	"testing"
	"testing/synctest"
)

// inBubble runs f in virtual time. f must not wait for anything outside, not even for a context
// from outside: virtual time would stop.
//
// Only package testing has such bubbles, and only for tests. So the first call starts a test that
// never ends, and each bubble is a subtest of it.
func inBubble(f func()) {
	bubbles().Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { f() })
	})
}

var bubbles = sync.OnceValue(func() *testing.T {
	os.Args = os.Args[:1] // testing.Main reads them for flags of its own
	endless := make(chan *testing.T)
	anyName := func(_, _ string) (bool, error) { return true, nil }
	defer quiet()()
	go testing.Main(anyName, []testing.InternalTest{{Name: "virtual time", F: func(t *testing.T) {
		endless <- t
		select {}
	}}}, nil, nil)
	return <-endless
})

// quiet has package testing not report the tests that begin until the function returned is called.
// In a test of this package run with -v or -json, the test that never ends would be taken for one
// that failed.
func quiet() (undo func()) {
	verbose := flag.Lookup("test.v")
	if verbose == nil { // this is no test
		return func() {}
	}
	was := verbose.Value.String()
	flag.Set("test.v", "false")
	return func() { flag.Set("test.v", was) }
}
