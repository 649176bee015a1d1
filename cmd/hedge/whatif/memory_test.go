package whatif_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/grpchedge/hedge/cmd/hedge/whatif"
	"github.com/grpchedge/hedge/internal/longtest"
)

// generated is a file that makes its lines as they are read. most is the largest heap after a
// collection.
type generated struct {
	line    func(n int) string
	n, of   int
	pending []byte
	most    uint64
}

func (g *generated) Read(p []byte) (int, error) {
	for len(g.pending) == 0 {
		if g.n == g.of {
			return 0, io.EOF
		}
		if g.n%(g.of/10) == g.of/10-1 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			g.most = max(g.most, m.HeapAlloc)
		}
		g.pending = []byte(g.line(g.n))
		g.n++
	}
	n := copy(p, g.pending)
	g.pending = g.pending[n:]
	return n, nil
}

// TestMemory checks that memory does not grow with the file, whatever its format and the order of
// its lines.
func TestMemory(t *testing.T) {
	longtest.Computation(t)
	edges := []string{"+Inf", "0.1", "0.2", "0.4", "0.8"}
	const lines = 300_000
	bucket := func(series, edge int) string {
		return fmt.Sprintf("rpc_seconds_bucket{pod=\"a-pod-of-a-fleet-%d\",le=\"%s\"} 7\n", series, edges[edge])
	}
	for name, of := range map[string]struct {
		q    whatif.Question
		line func(n int) string
	}{
		"lines":           {whatif.Question{}, func(n int) string { return fmt.Sprintf("%dms\n", n%1000) }},
		"series together": {whatif.Question{}, func(n int) string { return bucket(n/len(edges), n%len(edges)) }},
		"series apart": {whatif.Question{},
			func(n int) string { return bucket(n%(lines/len(edges)), n/(lines/len(edges))) }},
		"units": {whatif.Question{}, func(n int) string {
			if n > lines-5 {
				return bucket(0, lines-n-1)
			}
			return fmt.Sprintf("# UNIT metric_%d seconds\n", n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			file := &generated{line: of.line, of: lines}
			if err := of.q.Answer("calls", file, io.Discard, io.Discard); err != nil && name != "units" {
				t.Fatal(err)
			}
			if grown := int64(file.most) - int64(before.HeapAlloc); grown > 8<<20 {
				t.Errorf("%d lines take %.1f MB", lines, float64(grown)/1e6)
			}
		})
	}
}
