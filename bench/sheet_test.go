package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestSheet checks the three forms of a table against what they are to be, to the letter.
func TestSheet(t *testing.T) {
	s := &sheet{labels: 1, columns: []column{{"policy", "policy"}, {"p99", "p99_ms"}, {"extra load", "extra_load"}, {"calls", "calls"}}}
	s.add(word("none"), latency(64_300_000), share(0), number(50_000))
	s.line()
	s.add(word("static, 10 ms"), latency(17_449_600), share(0.0741), number(50_000))
	const (
		wantCSV = "policy,p99_ms,extra_load,calls\nnone,64.300,0.00000,50000\n\"static, 10 ms\",17.450,0.07410,50000\n"
		wantMD  = "| policy | p99 | extra load | calls |\n|:--- | ---:| ---:| ---:|\n| none | 64.3 ms | 0.0% | 50,000 |\n| static, 10 ms | 17.4 ms | 7.4% | 50,000 |\n"
	)
	if got := s.csv(); got != wantCSV {
		t.Errorf("CSV\n%s\nwant\n%s", got, wantCSV)
	}
	if got := s.markdown(); got != wantMD {
		t.Errorf("Markdown\n%s\nwant\n%s", got, wantMD)
	}
	var printed bytes.Buffer
	s.print(&printed)
	if got, want := strings.Count(printed.String(), "\n"), 5; got != want {
		t.Errorf("%d lines on a terminal, want %d:\n%s", got, want, &printed)
	}
}
