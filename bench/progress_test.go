package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressInALog checks what is written where there is no terminal: a plain line every ten seconds.
func TestProgressInALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := startProgress(&log, "demo", 400)
		time.Sleep(500 * time.Millisecond) // so that steps and lines do not meet
		for range 39 {
			p.add(10)
			time.Sleep(time.Second)
		}
		p.end()
		p.end()
		want := "demo: 25%, 30s left\ndemo: 50%, 20s left\ndemo: 75%, 10s left\n"
		if log.String() != want {
			t.Errorf("progress is told as\n%s\nwant\n%s", &log, want)
		}
	})
}

func TestNoProgress(t *testing.T) {
	var p *progress
	p.add(1)
	p.end()
}
