// Package progress shows how far a run has come.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/grpchedge/hedge/bench/figure"
)

// Progress shows how far a run has come and how long the rest will take: as a bar on a terminal, as
// a plain line now and then elsewhere. A nil *Progress shows nothing.
type Progress struct {
	what  string
	total int64 // 0: unknown
	start time.Time
	done  atomic.Int64

	quit chan struct{}
	wg   sync.WaitGroup
}

// How often progress is shown: often enough for a bar to move, seldom enough not to fill a log.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 10 * time.Second
)

// Start shows the progress of total steps until End is called, or how many steps were done if total
// is 0.
func Start(w io.Writer, what string, total int64) *Progress {
	p := &Progress{what: what, total: total, start: time.Now(), quit: make(chan struct{})}
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
				if done := p.done.Load(); done > 0 && (done < total || total == 0) {
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

// left estimates the remaining time from the mean rate.
func (p *Progress) left(done int64) string {
	left := float64(time.Since(p.start)) * float64(p.total-done) / float64(done)
	return time.Duration(left).Round(time.Second).String() + " left"
}

func (p *Progress) line(w io.Writer) (show func(done int64)) {
	return func(done int64) {
		if p.total == 0 {
			fmt.Fprintf(w, "%s: %s so far\n", p.what, figure.Count(done))
			return
		}
		fmt.Fprintf(w, "%s: %d%%, %s\n", p.what, 100*done/p.total, p.left(done))
	}
}

func (p *Progress) bar(terminal *os.File) (show func(done int64), end func()) {
	if p.total == 0 {
		show = func(done int64) { fmt.Fprintf(terminal, "\r%s: %s so far", p.what, figure.Count(done)) }
		return show, func() { fmt.Fprint(terminal, "\r\x1b[K") } // erases the line
	}
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

// Add counts n more steps as done. It may be called concurrently.
func (p *Progress) Add(n int64) {
	if p != nil {
		p.done.Add(n)
	}
}

// End stops showing progress. It may be called more than once.
func (p *Progress) End() {
	if p != nil && p.quit != nil {
		close(p.quit)
		p.wg.Wait()
		p.quit = nil
	}
}
