package debug_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// The page shows the options in force, and warns of an update that was refused until another one is
// accepted.
func TestHandler_Configuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.New(t, hedge.WithReadOnlyMethods("/shop.Items/<b>"), hedge.WithMaxHedges(1))
		calls(t, s, "dns:///shop:443", "/shop.Items/Get", 1)
		h, start := debug.Handler(s), time.Now()
		want := func(step string, options string, since time.Time, refused string, last bool) {
			t.Helper()
			var page struct {
				Configuration struct {
					Options []string
					Since   time.Time
					Refused *struct {
						At    time.Time
						Error string
						Last  bool
					}
				}
			}
			body := get(h, "?format=json", "").Body.Bytes()
			if err := json.Unmarshal(body, &page); err != nil {
				t.Fatal(err)
			}
			c := page.Configuration
			got, late := strings.Join(c.Options, " "), c.Since.Sub(since).Abs() > time.Second
			if got != options || late || (c.Refused == nil) != (refused == "") {
				t.Errorf("%s: the JSON has %q since %v, want %q since %v; refused: %+v",
					step, got, c.Since, options, since, c.Refused)
			}
			if c.Refused != nil && (!strings.Contains(c.Refused.Error, refused) || c.Refused.Last != last) {
				t.Errorf("%s: the JSON has the refused update %+v, want %q, the last: %v", step, c.Refused, refused, last)
			}
			html, text := get(h, "?format=html", "").Body.String(), get(h, "", "").Body.String()
			alarm := strings.Contains(html, `class="alarm">The update at`)
			if alarm != last || strings.Contains(text, "REFUSED") != last {
				t.Errorf("%s: a warning on the page: %v, want %v; the text is\n%s", step, alarm, last, text)
			}
			if shown := strings.Contains(html, refused) && strings.Contains(text, refused); !shown {
				t.Errorf("%s: %q is missing in\n%s", step, refused, text)
			}
			for _, option := range strings.Fields(options) {
				if !strings.Contains(text, "    "+option+"\n") {
					t.Errorf("%s: %q is missing in\n%s", step, option, text)
				}
			}
			if strings.Contains(html, "<b>") {
				t.Errorf("%s: an option is not escaped in\n%s", step, html)
			}
		}
		first := `WithReadOnlyMethods("/shop.Items/<b>") WithMaxHedges(1)`
		want("at first", first, start, "", false)
		time.Sleep(time.Minute)
		if err := config.Update(s, nil); err == nil {
			t.Error("an emptied file is no error")
		}
		want("after an emptied file", first, start, "syntax error", true)
		if err := config.Update(s, []byte(`{"maxHedges": 9}`)); err == nil {
			t.Error("maxHedges: 9 is no error")
		}
		want("after a mistake", first, start, "WithMaxHedges(9): must be 0 to 4", true)
		time.Sleep(time.Minute)
		if err := config.Update(s, []byte(`{"allMethods": true}`)); err != nil {
			t.Error(err)
		}
		want("after an update", "WithAllMethods()", start.Add(2*time.Minute), "WithMaxHedges(9): must be 0 to 4", false)
		time.Sleep(time.Minute)
		if err := config.Update(s, []byte(`{"window": "10s", "off": true}`)); err == nil {
			t.Error("another window is no error")
		}
		want("off beside a mistake", "WithAllMethods() WithOff(true)", start.Add(3*time.Minute), "WithWindow(10s)", true)
	})
}
