package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// millis writes a duration in milliseconds to three digits, or to a tenth from 100 ms on.
func millis(d time.Duration) string { return millisOf(float64(d) / float64(time.Millisecond)) }

func millisOf(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func ratio(x float64) string { return fmt.Sprintf("%.3f", x) }

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// count writes a number with a comma between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	var parts []string
	for len(s) > 3 && s[len(s)-4] != '-' {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, parts...), ",")
}
