package figure

import (
	"testing"
	"time"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -100: "-100",
		-1000: "-1,000"} {
		if got := Count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.000 ms", 48 * time.Microsecond: "0.048 ms", 9270 * time.Microsecond: "9.27 ms",
		64_720 * time.Microsecond: "64.7 ms", 2 * time.Second: "2000.0 ms",
	} {
		if got := Millis(d); got != want {
			t.Errorf("millis(%v) = %q, want %q", d, got, want)
		}
	}
}
