package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser returns the path of a browser. Without one the test is skipped, or fails if
// HEDGE_NEEDS_BROWSER is set.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("HEDGE_NEEDS_BROWSER") != "" {
		t.Fatal("HEDGE_NEEDS_BROWSER is set, and no chromium is installed")
	}
	t.Skip("no chromium is installed: on Debian, apt-get install chromium")
	return ""
}

// tab is a page that is open in a browser, and what its console said.
type tab struct {
	context.Context
	mu       sync.Mutex
	problems []string
}

func newTab(t *testing.T) *tab {
	t.Helper()
	path := browser(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	tab := &tab{Context: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		problem := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			problem = e.ExceptionDetails.Error()
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				problem = fmt.Sprintf("console: %+v", e.Args)
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
				problem = e.Entry.Text + " " + e.Entry.URL
			}
		default:
			return
		}
		if problem != "" {
			tab.mu.Lock()
			defer tab.mu.Unlock()
			tab.problems = append(tab.problems, problem)
		}
	})
	return tab
}

func (b *tab) run(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		t.Fatal(err)
	}
}

// quiet fails the test if the console has said something.
func (b *tab) quiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, problem := range b.problems {
		t.Error(problem)
	}
}

// look sets the width of the window and the colours that the user prefers.
func look(width int64, scheme string) chromedp.Action {
	return chromedp.Tasks{
		emulation.SetDeviceMetricsOverride(width, 800, 1, width < 600),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	}
}
