package tail

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/internal/testserver"
)

// taking is the result of 1,000 calls with the given p99 and p99.9.
func taking(p99, p999 time.Duration, attempts int64) *run.Result {
	r := &run.Result{Calls: 1000, Server: testserver.Counts{Attempts: attempts}}
	for range 989 {
		r.Latencies = append(r.Latencies, 5*time.Millisecond)
	}
	for range 9 {
		r.Latencies = append(r.Latencies, p99)
	}
	r.Latencies = append(r.Latencies, p999, p999)
	r.Sorted = r.Latencies
	return r
}

func TestJudge(t *testing.T) {
	plain := taking(60*time.Millisecond, 100*time.Millisecond, 1000)
	failed := taking(6*time.Millisecond, 10*time.Millisecond, 1000)
	failed.Failed, failed.FirstErr = 1, errors.New("broken")
	for _, tc := range []struct {
		name   string
		hedged *run.Result
		want   string // empty: kept
	}{
		{"kept to the letter", taking(18*time.Millisecond, 30*time.Millisecond, 1105), ""},
		{"p99", taking(19*time.Millisecond, 30*time.Millisecond, 1105), "the ratio of p99 is 0.317"},
		{"p99.9", taking(18*time.Millisecond, 31*time.Millisecond, 1105), "the ratio of p99.9 is 0.310"},
		{"extra load", taking(18*time.Millisecond, 30*time.Millisecond, 1106), "the extra load is 0.106"},
		{"failed", failed, "1 failed calls, 0 wrong replies; the first: broken"},
	} {
		v := judge(20, plain, tc.hedged, run.Stalls{})
		cells := v.cells()
		word := cells[len(cells)-1]
		if err := v.err(); tc.want == "" {
			if err != nil || word != "PASS" {
				t.Errorf("%s: %s, %v; want PASS", tc.name, word, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tc.want) || word != "FAIL" {
			t.Errorf("%s: %s, %v; want FAIL, %s", tc.name, word, err, tc.want)
		}
	}
}
