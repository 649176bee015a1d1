package main

import (
	"os"
	"sync"
	"testing"
	"testing/synctest"
)

// inBubble runs f where time is virtual. f must not wait for anything outside, its context included, for then the
// time inside would stand still.
//
// Such bubbles are to be had from package testing alone, and only by a test. So the first one starts a test
// that never ends, under which each bubble is a test of its own.
func inBubble(f func()) {
	bubbles().Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { f() })
	})
}

var bubbles = sync.OnceValue(func() *testing.T {
	os.Args = os.Args[:1] // testing.Main reads them for flags of its own
	endless := make(chan *testing.T)
	anyName := func(_, _ string) (bool, error) { return true, nil }
	go testing.Main(anyName, []testing.InternalTest{{Name: "virtual time", F: func(t *testing.T) {
		endless <- t
		select {}
	}}}, nil, nil)
	return <-endless
})
