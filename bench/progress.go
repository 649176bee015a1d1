package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far a run has come and how long it will still take: as a bar on a terminal, and elsewhere,
// such as in a log, as a plain line now and then. A nil progress shows nothing.
type progress struct {
	what  string
	total int64
	start time.Time
	done  atomic.Int64

	quit chan struct{}
	wg   sync.WaitGroup
}

// How often progress is shown: a bar is seen to move, and a log is not filled.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 10 * time.Second
)

// startProgress shows the progress of total steps until end is called.
func startProgress(w io.Writer, what string, total int64) *progress {
	p := &progress{what: what, total: total, start: time.Now(), quit: make(chan struct{})}
	every, show, end := lineEvery, p.line(w), func() {}
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		every = barEvery
		show, end = p.bar(file)
	}
	p.wg.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				if done := p.done.Load(); done > 0 && done < total {
					show(done)
				}
			case <-p.quit:
				end()
				return
			}
		}
	})
	return p
}

// left says how long the rest will take at the pace so far.
func (p *progress) left(done int64) string {
	left := float64(time.Since(p.start)) * float64(p.total-done) / float64(done)
	return time.Duration(left).Round(time.Second).String() + " left"
}

func (p *progress) line(w io.Writer) (show func(done int64)) {
	return func(done int64) {
		fmt.Fprintf(w, "%s: %d%%, %s\n", p.what, 100*done/p.total, p.left(done))
	}
}

func (p *progress) bar(terminal *os.File) (show func(done int64), end func()) {
	bar := progressbar.NewOptions64(p.total,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionSetDescription(p.what),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetWidth(40),
		progressbar.OptionClearOnFinish(),
	)
	show = func(done int64) {
		bar.Describe(fmt.Sprintf("%s, %9s", p.what, p.left(done)))
		_ = bar.Set64(done) // a bar that cannot be shown is no reason to stop
	}
	return show, func() { _ = bar.Finish() }
}

// add says that n more steps are done. It may be called concurrently, at any rate.
func (p *progress) add(n int64) {
	if p != nil {
		p.done.Add(n)
	}
}

// end stops showing progress. It may be called again.
func (p *progress) end() {
	if p != nil && p.quit != nil {
		close(p.quit)
		p.wg.Wait()
		p.quit = nil
	}
}
