package progress

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressInALog checks the output to a log: a plain line every ten seconds.
func TestProgressInALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := Start(&log, "demo", 400)
		time.Sleep(500 * time.Millisecond) // so that steps and lines do not meet
		for range 39 {
			p.Add(10)
			time.Sleep(time.Second)
		}
		p.End()
		p.End()
		want := "demo: 25%, 30s left\ndemo: 50%, 20s left\ndemo: 75%, 10s left\n"
		if log.String() != want {
			t.Errorf("progress is told as\n%s\nwant\n%s", &log, want)
		}
	})
}
