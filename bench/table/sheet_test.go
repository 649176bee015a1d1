package table

import (
	"bytes"
	"strings"
	"testing"
)

// TestSheet checks the exact text of the three forms of a table.
func TestSheet(t *testing.T) {
	s := &Sheet{Labels: 1, Columns: Columns("policy", "policy", "p99", "p99_ms", "extra load", "extra_load",
		"calls", "calls")}
	s.Add(Word("none"), Latency(64_300_000), Share(0), Number(50_000))
	s.Line()
	s.Add(Word("static, 10 ms"), Latency(17_449_600), Share(0.0741), Number(50_000))
	const (
		wantCSV = "policy,p99_ms,extra_load,calls\nnone,64.300,0.00000,50000\n\"static, 10 ms\",17.450,0.07410,50000\n"
		wantMD  = "| policy | p99 | extra load | calls |\n|:--- | ---:| ---:| ---:|\n| none | 64.3 ms | 0.0% | " +
			"50,000 |\n| static, 10 ms | 17.4 ms | 7.4% | 50,000 |\n"
	)
	if got := s.CSV(); got != wantCSV {
		t.Errorf("CSV\n%s\nwant\n%s", got, wantCSV)
	}
	if got := s.Markdown(); got != wantMD {
		t.Errorf("Markdown\n%s\nwant\n%s", got, wantMD)
	}
	var printed bytes.Buffer
	s.Print(&printed)
	if got, want := strings.Count(printed.String(), "\n"), 5; got != want {
		t.Errorf("%d lines on a terminal, want %d:\n%s", got, want, &printed)
	}
}
