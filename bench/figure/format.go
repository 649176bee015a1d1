package figure

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Millis writes a duration in milliseconds to three digits, or to a tenth from 100 ms on.
func Millis(d time.Duration) string { return MillisOf(float64(d) / float64(time.Millisecond)) }

// MillisOf formats a number of milliseconds as Millis does.
func MillisOf(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// Ratio formats a ratio with three decimals.
func Ratio(x float64) string { return fmt.Sprintf("%.3f", x) }

// Percent formats a share, such as 0.105, as a percentage with one decimal.
func Percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// Count writes a number with a comma between thousands.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	var parts []string
	for len(s) > 3 && s[len(s)-4] != '-' {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, parts...), ",")
}
