package browser_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

var pictures = flag.String("browser.pictures", "", "write pictures of the first method of each page into this folder")

// TestPage_Live has a page show a method that would do harm, then another one, without being loaded
// again.
func TestPage_Live(t *testing.T) {
	tab := newTab(t)
	s := hedgetest.All(t)
	server := httptest.NewServer(debug.Handler(s))
	defer server.Close()
	do := func(target, name string) { hedgetest.Call(t, s, target, name, ms) }
	do("dns:///shop:443", "/shop.Items/Get")
	do(`"><img src=x onerror=document.title='harm'>`, "/<script>document.title='harm'</script>")
	type row struct{ Target, Method string }
	const read = `[...document.querySelectorAll("article")].map(
		a => ({Target: a.dataset.target, Method: a.dataset.method}))`
	want := func() (rows []row) {
		for _, one := range s.Methods() {
			rows = append(rows, row{one.Target, one.Method})
		}
		return rows
	}
	var got []row
	var title string
	tab.run(t, chromedp.Navigate(server.URL), chromedp.Evaluate(read, &got))
	if !slices.Equal(got, want()) {
		t.Errorf("rows %v, want %v", got, want())
	}
	do("dns:///shop:443", "/shop.Items/New")
	tab.run(t,
		chromedp.Poll(`document.querySelector("article[data-method='/shop.Items/New']") !== null`, nil,
			chromedp.WithPollingTimeout(patience)),
		chromedp.Evaluate(read, &got), chromedp.Title(&title))
	if !slices.Equal(got, want()) || title != "Hedging" {
		t.Errorf("rows %v, want %v; the title is %q", got, want(), title)
	}
	var scripts int
	tab.run(t, chromedp.Evaluate(`document.querySelectorAll("main script, main img, main iframe").length`, &scripts))
	if scripts != 0 {
		t.Errorf("%d elements come from names", scripts)
	}
	tab.quiet(t)
}

// contrast returns texts with a contrast to their background below 4.5, the minimum of WCAG 2.
const contrast = `(() => {
	const parse = c => c.match(/[\d.]+/g).map(Number);
	const linear = v => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
	const luminance = c => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length < 4 || c[3] > 0) return c;
		}
		return [255, 255, 255];
	};
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
		const style = getComputedStyle(e), text = luminance(
			parse(e instanceof SVGElement ? style.fill : style.color)), back = luminance(behind(e));
		const ratio = (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
		if (ratio < 4.5) bad.push(e.tagName + " " + e.className + " " + ratio.toFixed(1) + ": " +
			e.textContent.trim().slice(0, 40));
	}
	return bad;
})()`

// small returns texts below 9 pixels, texts that overlap another text of the same chart, and
// clipped texts.
const small = `(() => {
	const bad = [];
	for (const svg of document.querySelectorAll("svg.chart")) {
		const boxes = [...svg.querySelectorAll("text")].map(e => ({box: e.getBoundingClientRect(), text: e.textContent,
			size: parseFloat(getComputedStyle(e).fontSize) * svg.getBoundingClientRect().width / 360}));
		boxes.forEach((a, i) => {
			if (a.size < 9) bad.push(a.text + " is " + a.size.toFixed(1) + " px");
			if (a.box.left < svg.getBoundingClientRect().left ||
				a.box.right > svg.getBoundingClientRect().right) bad.push(a.text + " is cut off");
			for (const b of boxes.slice(i + 1))
				if (a.box.left < b.box.right && b.box.left < a.box.right && a.box.top < b.box.bottom - 1 &&
					b.box.top < a.box.bottom - 1) bad.push(a.text + " overlaps " + b.text);
		});
	}
	return bad;
})()`

func TestPage_Reads(t *testing.T) {
	browser(t)
	for _, traffic := range []struct {
		name    string
		methods []method
		options []hedge.Option
		update  string // the JSON of an update after ten minutes; "": none
		picture string // of this element
	}{
		{name: "healthy", methods: healthy, picture: "article"},
		{name: "unhealthy", methods: unhealthy, picture: "article"},
		{name: "outage", methods: outage, picture: "article"},
		{name: "busy", methods: busy, picture: "article"},
		{name: "control", methods: healthy[:1], options: []hedge.Option{hedge.WithControl(5)}, picture: "article"},
		{name: "refused", methods: healthy[:1], update: `{"off": true, "maxHedges": 9}`, picture: "body"},
	} {
		name, methods := traffic.name, traffic.methods
		server := httptest.NewServer(afterTenMinutes(t, methods, traffic.options, traffic.update))
		defer server.Close()
		for _, width := range []int64{390, 1400} {
			for _, scheme := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%s at %d, %s", name, width, scheme), func(t *testing.T) {
					tab := newTab(t)
					var scroll int64
					var faint, cramped []string
					var curves int
					tab.run(t, look(width, scheme), chromedp.Navigate(server.URL),
						chromedp.Evaluate(`document.documentElement.scrollWidth`, &scroll),
						chromedp.Evaluate(contrast, &faint), chromedp.Evaluate(small, &cramped),
						chromedp.Evaluate(`document.querySelectorAll("polyline").length`, &curves))
					if scroll > width || len(faint)+len(cramped) > 0 || curves < 5*len(methods)/2 {
						t.Errorf("%d pixels wide, %d curves; hard to read: %q, %q", scroll, curves, faint, cramped)
					}
					if *pictures != "" {
						var png []byte
						tab.run(t, chromedp.Screenshot(traffic.picture, &png, chromedp.ByQuery))
						file := fmt.Sprintf("%s-%d-%s.png", name, width, scheme)
						if err := os.WriteFile(filepath.Join(*pictures, file), png, 0o644); err != nil {
							t.Fatal(err)
						}
					}
					tab.quiet(t)
				})
			}
		}
	}
}

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
		t.Fatal("HEDGE_NEEDS_BROWSER is set, but no chromium is installed")
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

// patience bounds all that a tab does.
const patience = 10 * time.Minute

func newTab(t *testing.T) *tab {
	t.Helper()
	path := browser(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WSURLReadTimeout(patience), // until it has started
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

const ms = time.Millisecond

// method is a method with its call rate per second. From an age of the program on, if there is one,
// its attempts take a second more, fail, or take 40 ms more because its goroutines wait for a processor.
type method struct {
	target, name        string
	rate                float64
	takes               testserver.Distribution
	stalls, fails, busy time.Duration
}

var stragglers = testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10)

var healthy = []method{
	{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers},
	{target: "items.shop:443", name: "/shop.Items/Search", rate: 25,
		takes: testserver.Straggler(testserver.LogNormal(33*ms, 14*ms), 0.03, 8)},
	{target: "prices.shop:443", name: "/shop.Prices/List", rate: 20, takes: testserver.LogNormal(80*ms, 16*ms)},
	{target: "prices.shop:443", name: "/shop.Prices/Rare", rate: 0.02, takes: testserver.LogNormal(80*ms, 16*ms)},
}

var unhealthy = []method{{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers,
	stalls: 6 * time.Minute}}

var outage = []method{{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers,
	fails: 6 * time.Minute}}

var busy = []method{{target: "items.shop:443", name: "/shop.Items/Get", rate: 60, takes: stragglers,
	busy: 6 * time.Minute}}

// afterTenMinutes calls the methods for ten minutes of virtual time under a scheduler with these
// options, then updates it, and returns a handler with the debug page as it is then.
func afterTenMinutes(t *testing.T, methods []method, options []hedge.Option, update string) http.Handler {
	t.Helper()
	pages := map[string]*httptest.ResponseRecorder{}
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, options...)
		page, began := debug.Handler(s), time.Now() // it has a history from now on
		since := func(age time.Duration) bool { return age > 0 && time.Since(began) > age }
		defer runqueue.Replace(func() time.Duration {
			if since(methods[0].busy) {
				return 20 * ms
			}
			return 0
		})()
		var running sync.WaitGroup
		for n, m := range methods {
			running.Go(func() {
				pauses := rand.New(rand.NewPCG(2, uint64(n)))
				for id := uint64(0); time.Since(began) < 10*time.Minute+30*time.Second; id++ {
					time.Sleep(time.Duration(float64(time.Second) / m.rate * pauses.ExpFloat64()))
					running.Go(func() {
						_, _ = hedge.Do(t.Context(), s, m.target, m.name, func(ctx context.Context) (int, error) {
							d := m.takes.Draw(simulation.Generator(uint64(n), id, simulation.AttemptOf(ctx)))
							switch {
							case since(m.stalls):
								d += time.Second
							case since(m.busy):
								d += 40 * ms
							case since(m.fails):
								return 0, status.Error(codes.Unavailable, "down")
							}
							return hedgetest.Taking(d)(ctx)
						})
					})
				}
			})
		}
		time.Sleep(10*time.Minute + 29*time.Second)
		if update != "" && config.Update(s, []byte(update)) == nil {
			t.Errorf("the update %s is not refused", update)
		}
		for _, query := range []string{"", "format=html&part=main"} {
			r := httptest.NewRequest("GET", "/?"+query, nil)
			r.Header.Set("Accept", "text/html")
			pages[query] = httptest.NewRecorder()
			page.ServeHTTP(pages[query], r)
		}
		running.Wait()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.RawQuery]
		if page == nil { // an asset
			debug.Handler(nil).ServeHTTP(w, r)
			return
		}
		maps.Copy(w.Header(), page.Header())
		_, _ = w.Write(page.Body.Bytes())
	})
}
