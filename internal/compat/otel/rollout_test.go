package otel_test

import (
	"context"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRollout takes the stages of docs/rollout.md by its own configurations, 15 minutes each. After
// each stage the queries of its section return the method. Then it goes back, by each of the ways
// that the page has.
func TestRollout(t *testing.T) {
	page, err := os.ReadFile("../../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	fences := regexp.MustCompile("(?s)```(json|promql)\n(.*?)\n```").FindAllStringSubmatch(string(page), -1)
	type stage struct{ scrapes, queries []string }
	var stages []stage
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		s := hedgetest.All(t, hedge.WithOff(true), b.telemetry(t))
		update := func(text string) {
			opts, err := config.Parse([]byte(text))
			if err == nil {
				err = s.Update(opts...)
			}
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		latency, rng := testserver.DistributionT(t, "straggler"), rand.New(rand.NewPCG(1, 2))
		hedges := func(minutes int) (sent int64, scrapes []string) {
			const rate = 100
			before := s.Stats().Hedges
			var calls sync.WaitGroup
			var mu sync.Mutex // for rng
			attempt := func(ctx context.Context) (int, error) {
				mu.Lock()
				takes := latency.Draw(rng)
				mu.Unlock()
				return hedgetest.Taking(takes)(ctx)
			}
			for range minutes {
				for range 60 * rate {
					calls.Go(func() { _, _ = hedge.Do(t.Context(), s, "dns:///catalog", "/shop.Catalog/Get", attempt) })
					time.Sleep(time.Second / rate)
				}
				scrapes = append(scrapes, b.scrape())
			}
			calls.Wait()
			return s.Stats().Hedges - before, scrapes
		}
		for _, fence := range fences {
			if kind, text := fence[1], fence[2]; kind == "json" {
				update(text)
				sent, scrapes := hedges(15)
				row := s.Methods()[0]
				t.Logf("%s: %d hedges of 90000 calls; predicted %v to %v; gain: %v", text, sent,
					row.Choice.UnhedgedTail, row.Choice.PredictedTail, row.Gain)
				stages = append(stages, stage{scrapes: scrapes})
			} else {
				stages[len(stages)-1].queries = strings.Split(strings.ReplaceAll(text, "\n  ", " "), "\n")
			}
		}
		if len(fences) != 8 {
			t.Errorf("%d stages and lists of queries", len(fences))
		}
		for _, back := range []string{`"dryRun": true`, `"control": 100`, `"off": true`,
			`"methodOptions": {"/shop.Catalog/Get": {"off": true}}`,
			`"targetOptions": {"dns:///catalog": {"off": true}}`} {
			update(`{"readOnlyMethods": ["/shop.Catalog/*"], ` + back + `}`)
			if n, _ := hedges(1); n != 0 {
				t.Errorf("%s: %d hedges", back, n)
			}
		}
		s.Pause()
		update(`{"readOnlyMethods": ["/shop.Catalog/*"]}`)
		if n, _ := hedges(1); n != 0 {
			t.Errorf("paused: %d hedges", n)
		}
		s.Resume()
		if n, _ := hedges(1); n < 60 {
			t.Errorf("all is as before: %d hedges", n)
		}
	})
	for _, stage := range stages {
		for _, q := range stage.queries {
			scraped(stage.scrapes).evaluate(t, "groups: []\n",
				query{"count(" + q + ")", len(stage.scrapes) - 1, []string{"{}"}})
		}
	}
}
