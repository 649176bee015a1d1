package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// TestResets_ConnectionsThatAreReplaced has a server close connections in an orderly way, which fails no call.
func TestResets_ConnectionsThatAreReplaced(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every int // resets of a connection
		lives time.Duration
	}{
		{"after 1,000 resets", 1000, 0},
		{"every ten seconds", 0, 10 * time.Second},
		{"every half hour", 0, 30 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer()
			conns, resets, since := 0, 0, s.now
			for end := s.now.Add(time.Hour); s.now.Before(end); s.now = s.now.Add(10 * time.Millisecond) {
				if s.rules.Lose(s.now) {
					resets++
				}
				s.rules.Used(fmt.Sprint("local ", conns), "remote", s.now)
				if tc.every > 0 && resets >= tc.every || tc.lives > 0 && s.now.Sub(since) >= tc.lives {
					conns, resets, since = conns+1, 0, s.now
				}
			}
			got := s.rules.Read(s.now)
			t.Logf("%d connections, %+v", conns, got)
			// A server that counts for ever still closes some: 360 without a limit.
			if tc.every == 0 && got.Mode != engine.ResetsUnlimited || tc.every > 0 && conns > 120 {
				t.Errorf("%d connections, %+v", conns, got)
			}
		})
	}
}
